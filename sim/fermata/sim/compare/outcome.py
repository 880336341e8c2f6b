"""What came of a comparison, however much of it was run: as a report's sections, and as one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fermata.policy.errors import InputError
from fermata.policy.wording import counted, plural
from fermata.sim.compare.run import Point, Sample, Unit, Workload
from fermata.sim.experiment import pooled
from fermata.sim.json_values import only_finite
from fermata.sim.report.holds import HoldEffect, HoldSummary
from fermata.sim.report.numbers import Difference, Paired, above_bound_percent, class_rows, difference
from fermata.sim.report.records import Bound, Run, Section, Sweep

_NO_SWEEP = {
    "load": "JCT against load and held time against arrival rate need a workload with a load.",
    "ratio": "Held time against size ratio needs a scenario with a parameter for the size of long jobs.",
}


@dataclass
class Comparison:
    """Results as they come in; every figure is of the seeds that all policies have finished.

    Args:
        workloads: what is compared.
        base: index of the policy that the others are compared with.
    """

    workloads: Sequence[Workload]
    base: int
    samples: dict[int, list[Sample]] = field(default_factory=dict)  # by workload
    points: dict[tuple[int, int], list[Point]] = field(default_factory=dict)  # by workload and variation

    def add(self, unit: Unit, result: Sample | Point) -> None:
        """Take a result."""
        if isinstance(result, Sample):
            self.samples.setdefault(unit.workload, []).append(result)
        elif unit.variation is not None:
            self.points.setdefault((unit.workload, unit.variation), []).append(result)

    @property
    def names(self) -> list[str]:
        """The policies, as the user wrote them."""
        return [setting.policy for setting in self.workloads[0].settings]

    def sections(self) -> list[Section]:
        """Return a section for each workload of which some seed is done.

        Raises:
            InputError: there is none, or no job that counts of one takes any time under any policy.
        """
        if not self.samples:
            raise InputError("no episode is done")
        for number, samples in self.samples.items():
            schedules = [found for each in samples for found in each.schedules]
            if not any(found.jct_s[found.warm :].any() for found in schedules):
                jobs = f"no job of {self.workloads[number].source.name}"
                after = " after the warm-up" if schedules[0].warm else ""
                raise InputError(f"{jobs}{after} takes any time: nothing to compare")
        return [self._section(number) for number in sorted(self.samples)]

    def _section(self, number: int) -> Section:
        workload, samples = self.workloads[number], self.samples[number]
        runs = [Run(name, [each.schedules[place] for each in samples]) for place, name in enumerate(self.names)]
        holds = {
            name: sum((each.holds[place] for each in samples), HoldSummary()) for place, name in enumerate(self.names)
        }
        sweeps = [found for kind in ("load", "ratio") if (found := self._sweep(number, kind)) is not None]
        notes = [text for kind, text in _NO_SWEEP.items() if self._unfit(number, kind)]
        return Section(
            name=workload.source.name,
            lead=_lead(workload, samples),
            runs=runs,
            base=self.names[self.base],
            units=[str(each.seed) if workload.seeded else "" for each in samples],
            bound=_bound(samples),
            holds=holds,
            sweeps=sweeps,
            notes=notes,
        )

    def _unfit(self, number: int, kind: str) -> bool:
        workload = self.workloads[number]
        return workload.sweep_seeds > 0 and not any(each.kind == kind for each in workload.variations)

    def _sweep(self, number: int, kind: str) -> Sweep | None:
        """Return a sweep over the points that have all their seeds; None if there are not two."""
        workload = self.workloads[number]
        seeds = min(workload.sweep_seeds, len(workload.seeds))
        done = [
            (varied.value, self.points[number, index])
            for index, varied in enumerate(workload.variations)
            if varied.kind == kind and len(self.points.get((number, index), ())) == seeds
        ]
        if len(done) < 2:
            return None
        return Sweep(
            kind=kind,
            value=np.array([value for value, _ in done]),
            arrivals_per_s=np.array([np.mean([each.arrivals_per_s for each in points]) for _, points in done]),
            jct_s={
                name: np.array([[each.jct_s[place] for each in points] for _, points in done])
                for place, name in enumerate(self.names)
            },
            held_s={
                name: np.array([[each.held_s[place] for each in points] for _, points in done])
                for place, name in enumerate(self.names)
            },
            note=_sweep_note(workload, kind, seeds),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers as one JSON object, by workload and policy; None where there is no percentage."""
        return {section.name: only_finite(self._numbers(number, section)) for number, section in self._numbered()}

    def _numbered(self) -> list[tuple[int, Section]]:
        return list(zip(sorted(self.samples), self.sections(), strict=True))

    def _numbers(self, number: int, section: Section) -> dict[str, Any]:
        samples = self.samples[number]
        base = section.runs[self.base]
        rows = class_rows(section.runs, base)
        policies = {}
        for place, run in enumerate(section.runs):
            figures = pooled({each.seed: each.figures[place] for each in samples})
            if run is not base:
                figures["against_base"] = _difference(difference(run, base, section.unit))
            if section.bound is not None:
                figures["above_bound_pct"] = above_bound_percent(run, section.bound.mean_s)
            figures["classes"] = {
                row.label: {key: value for key, value in row._asdict().items() if key not in ("label", "run")}
                for row in rows
                if row.run == run.name
            }
            figures["holds"] = _holds(section.holds[run.name])
            policies[run.name] = figures
        return {
            "base": base.name,
            "executors": base.schedules[0].executors,
            "seeds": [each.seed for each in samples],
            "bound": None
            if section.bound is None
            else {"kind": section.bound.kind, "mean_jct_s": float(section.bound.mean_s.mean())},
            "policies": policies,
            "sweeps": {sweep.kind: _sweep_numbers(sweep) for sweep in section.sweeps},
        }


def _bound(samples: Sequence[Sample]) -> Bound | None:
    bounds = [each.bound for each in samples]
    known = [bound for bound in bounds if bound is not None]
    if len(known) < len(bounds):
        return None
    return Bound(known[0][0], np.array([mean_s for _, mean_s in known]))


def _lead(workload: Workload, samples: Sequence[Sample]) -> str:
    first, setting = samples[0].schedules[0], workload.settings[0]
    jobs = [len(each.schedules[0].job_ids) for each in samples]
    count = f"{min(jobs):,}" if min(jobs) == max(jobs) else f"{min(jobs):,} to {max(jobs):,}"
    parts = [f"{count} {plural(max(jobs), 'job')} on {counted(first.executors, 'executor')}"]
    if setting.warm:
        parts.append(f"the first {setting.warm:,} of which are left out of all means")
    if len(samples) > 1:
        parts.append(f"{len(samples)} seeds, the same for every policy")
    words = "; ".join(parts)
    description = getattr(getattr(workload.source, "scenario", None), "description", "").partition("\n\n")[0]
    where = " Its parameters are at the end of the page." if description else ""
    return f"{words}. {description}{where}".replace("`", "").strip()


def _sweep_note(workload: Workload, kind: str, seeds: int) -> str:
    first = next(each for each in workload.variations if each.kind == kind)
    scenario = getattr(first.source, "scenario", None)
    if scenario is None:
        return "The trace with its arrivals further apart or closer together."
    words = "The load is the same throughout; " if kind == "ratio" else ""
    return f"{words}{scenario.jobs:,} {plural(scenario.jobs, 'job')} and {counted(seeds, 'seed')} a point."


def _difference(found: Difference) -> dict[str, Any]:
    def told(paired: Paired) -> dict[str, float | None]:
        # A single value has no interval.
        return paired._asdict() if found.units > 1 else {**dict.fromkeys(Paired._fields), "mean": paired.mean}

    return {
        "seconds": told(found.seconds),
        "percent": told(found.percent),
        "over": found.unit,
        "values": found.units,
    }


def _holds(found: HoldSummary) -> dict[str, Any]:
    def row(effect: HoldEffect) -> dict[str, Any]:
        return effect._asdict() | {"net_s": effect.net_s}

    numbers = asdict(found)
    return numbers | {"worst": [row(each) for each in found.worst], "best": [row(each) for each in found.best]}


def _sweep_numbers(sweep: Sweep) -> dict[str, Any]:
    return {
        "value": sweep.value.tolist(),
        "arrivals_per_s": sweep.arrivals_per_s.tolist(),
        "avg_jct_s": {name: rows.tolist() for name, rows in sweep.jct_s.items()},
        "avg_held_s": {name: rows.tolist() for name, rows in sweep.held_s.items()},
    }
