"""Training of policies that allocate executors, in Decima's Spark model."""
