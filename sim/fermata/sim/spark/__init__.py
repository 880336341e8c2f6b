"""Decima's model of Spark: executors that move between jobs, and tasks whose durations depend on it."""
