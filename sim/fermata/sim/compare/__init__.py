"""Policies side by side on the same jobs: episodes, sweeps, and what a report needs of them.

Reading order: `sources` (where jobs come from), `run` (the units of work), `episodes` (what is kept), `outcome`.
"""
