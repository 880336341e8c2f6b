"""Fermata's own job traces, so that checking, cutting and compressing one is the same command as importing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fermata.sim.generate.estimates import exact_estimates
from fermata.sim.importers.base import DEFAULTS, Imported, ImportOptions
from fermata.sim.trace_io import read_trace
from fermata.sim.trace_jobs import select_jobs


def read_native(path: str | Path, options: ImportOptions = DEFAULTS) -> Imported:
    """Read a job trace; of the options `limit`, `exact_estimates` and `one_slot` apply.

    Raises:
        InputError: it breaks the format; names file and line.
    """
    trace = read_trace(path, progress=options.progress)
    if options.limit is not None and options.limit < trace.jobs:
        trace = select_jobs(trace, np.arange(options.limit))
    if options.exact_estimates:
        trace = exact_estimates(trace)
    if options.one_slot:
        trace = replace(trace, stage_slots=np.ones_like(trace.stage_slots))
    return Imported(trace)
