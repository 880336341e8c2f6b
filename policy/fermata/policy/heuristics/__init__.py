"""Heuristics: one small file each, and the compiled kernel they share."""
