"""What holds for every test."""

import os

from hypothesis import HealthCheck, settings

# How long an example takes says as much of the machine's other users as of the code; `make bench` measures.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# What is said of a terminal must neither shorten nor colour what tests read.
for name in ("COLUMNS", "FORCE_COLOR"):
    os.environ.pop(name, None)
