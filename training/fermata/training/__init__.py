"""Offline training of policies in the simulator; the only room that knows torch."""
