"""The simulator as a Gymnasium environment, for people who bring their own learner.

Importing this module registers `fermata/Scheduling-v0`; `gymnasium.make("fermata.sim.gym:fermata/Scheduling-v0")` does
both at once. docs/gymnasium.md has the spaces in words.

Reading order: `observation` (what an agent sees and may do, as arrays), `env` (the episode).
"""

from __future__ import annotations

import gymnasium

ID = "fermata/Scheduling-v0"

if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point="fermata.sim.gym.env:SchedulingEnv")
