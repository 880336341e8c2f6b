"""The demonstration: pools side by side on an embedded control plane, given the same stream of workflows.

It starts the real parts as processes of their own, submits like any user and reads back only what the API tells. It
knows nothing of how the operator decides.

Reading order: `stream` (what is submitted), `children` (the processes), `follow` (what the API tells of it), `run`.
"""

from __future__ import annotations

from fermata.sim.demo.run import Result, run
from fermata.sim.demo.stream import Stream, express

__all__ = ["Result", "Stream", "express", "run"]
