"""What holds for every test."""

import os

from hypothesis import HealthCheck, settings

# How long an example takes says as much of the machine's other users as of the code; `make bench` measures.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# Help is laid out for the terminal, and what a shell says of its own must not shorten what tests read.
os.environ.pop("COLUMNS", None)
