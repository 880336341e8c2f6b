"""Scores for tasks of several executors (`fermata.policy.several_slots`), searched for on whole episodes of a trace."""
