"""Rigid parallel jobs on one machine: schedulers with and without backfilling, and inspectors that hold jobs back.

An engine of its own beside the DAG engine (docs/adr says why): `jobs.py` and `swf.py`, `lublin.py`, `estimates.py` say
what is submitted; `orders.py`, `rules.py` and `policies.py` what the scheduler is; `simulate.py` runs it; `metrics.py`
and `experiment.py` say what it was worth; `kernel.py` and what it imports are compiled.
"""

from fermata.sim.hpc.jobs import JobLog
from fermata.sim.hpc.policies import Policy, policy
from fermata.sim.hpc.rules import Backfill, Rules, Start
from fermata.sim.hpc.simulate import Schedule, simulate

__all__ = ["Backfill", "JobLog", "Policy", "Rules", "Schedule", "Start", "policy", "simulate"]
