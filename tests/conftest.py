"""What holds for every test."""

from hypothesis import HealthCheck, settings

# How long an example takes says as much of the machine's other users as of the code; `make bench` measures.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
