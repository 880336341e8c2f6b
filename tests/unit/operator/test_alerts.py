"""The alerts that ship, as Prometheus judges them: each fires where it should, and only there.

promtool is Prometheus' own; what it is given are the series of /metrics as they would be scraped.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client import generate_latest
from tests.unit.operator.test_deploy import MONITORING, _asked

from fermata.operator import reasons
from fermata.operator.metrics import Metrics

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")

SPEC: dict[str, Any] = yaml.safe_load((MONITORING / "rules.yaml").read_text(encoding="utf-8"))["spec"]
RULES = {rule["alert"]: rule for group in SPEC["groups"] for rule in group["rules"]}
Labels = dict[str, str]


class Level(NamedTuple):
    """Values of a gauge, each from a time in seconds on; None: it is not there any more."""

    steps: tuple[tuple[float, float | None], ...]

    def values(self, interval_s: int, end_s: int) -> list[float | None]:
        times = range(0, end_s + 1, interval_s)
        return [next((value for from_s, value in reversed(self.steps) if from_s <= at), None) for at in times]


class Rate(NamedTuple):
    """A counter that rises evenly, from 0 and from a time in seconds on, for as long as is said."""

    per_s: float
    from_s: float = 0.0
    to_s: float = math.inf

    def values(self, interval_s: int, end_s: int) -> list[float | None]:
        times = range(0, end_s + 1, interval_s)
        return [float(int(self.per_s * (min(max(at, self.from_s), self.to_s) - self.from_s))) for at in times]


def level(*steps: tuple[float, float | None] | float) -> Level:
    return Level(tuple(step if isinstance(step, tuple) else (0.0, step) for step in steps))


def leader(pod: str, *steps: tuple[float, float | None] | float, lease: str = "fermata-operator") -> dict[str, Level]:
    return {f'fermata_leader{{lease="{lease}",pod="{pod}"}}': level(*steps)}


def pool(stages: float, busy: Level, state: str = "waiting") -> dict[str, Level]:
    return {
        f'fermata_pool_stages{{pool="p",state="{state}",pod="a"}}': level(stages),
        'fermata_pool_executors{pool="p",state="busy",pod="a"}': busy,
    }


def requests(instance: str, per_s: float, errors: float = 0.0, code: str = "403") -> dict[str, Rate]:
    fine, failed = (f'verb="POST",code="{each}",instance="{instance}"' for each in ("201", code))
    return {
        f"fermata_api_requests_total{{{fine}}}": Rate(per_s - errors),
        f"fermata_api_requests_total{{{failed}}}": Rate(errors),
        f"fermata_api_errors_total{{{failed}}}": Rate(errors),
    }


def decisions(per_s: float, slow: float = 0.0, fallbacks: float = 0.0, reason: str = reasons.DECISION_LATE) -> Any:
    bucket = 'fermata_decision_seconds_bucket{pool="p",policy="m",le="%s"}'
    return {
        bucket % "0.5": Rate(per_s - slow),
        bucket % "1.0": Rate(per_s),
        bucket % "+Inf": Rate(per_s),
        'fermata_decision_seconds_count{pool="p",policy="m"}': Rate(per_s),
        f'fermata_fallbacks_total{{pool="p",reason="{reason}"}}': Rate(fallbacks),
    }


class Case(NamedTuple):
    """Series, and who is alerted about what at a time in minutes."""

    name: str
    series: dict[str, Any]
    at_min: int
    fires: str = ""  # or an empty text: nothing at all
    labels: Labels | None = None  # of the alert, beside those of its rule


LEASE, POOL = {"lease": "fermata-operator"}, {"pool": "p"}
HEALTHY = leader("a", 1) | leader("b", 0) | requests("a", 0.6) | pool(0, level(1)) | decisions(0.1)
FAILS = 'fermata_reconcile_failures_total{pool="p",pod="a"}'
READY, PAUSED = 'fermata_pool_policy_ready{pool="p",pod="a"}', 'fermata_pool_holding_paused{pool="p",pod="a"}'
AMISS = 'fermata_pool_stages_amiss{pool="p",pod="a"}'
CASES = [
    Case("healthy", HEALTHY | {FAILS: level(0), READY: level(1), PAUSED: level(0)}, 60),
    Case("just started, without pools", leader("a", (60, 0), (90, 1)) | requests("a", 0.6), 2),
    Case("idle", leader("a", 1) | requests("a", 0.6) | pool(0, level(0)) | decisions(0.0), 60),
    Case("nobody was ever there", {}, 5, "FermataNobodyActs"),
    Case("nobody leads", leader("a", 0) | leader("b", 0), 5, "FermataNobodyActs", LEASE),
    Case("all are gone", leader("a", 1, (600, None)), 20, "FermataNobodyActs", LEASE),
    Case("all are gone for long", leader("a", 1, (600, None)), 90, "FermataNobodyActs"),
    Case(
        "one is gone beside another's",
        leader("a", 1, (600, None)) | leader("b", 1, lease="fermata-operator-team"),
        20, "FermataNobodyActs", LEASE,
    ),
    Case("one was removed", leader("a", 1, (600, None)) | leader("b", 1, lease="fermata-operator-team"), 90),
    Case("a standby takes over", leader("a", 1, (600, None)) | leader("b", 0, (630, 1)), 12),
    Case("two act", leader("a", 1) | leader("b", 1), 4, "FermataTwoAct", LEASE),
    Case("two of two leases", leader("a", 1) | leader("b", 1, lease="fermata-operator-team"), 30),
    Case("it fails again and again", leader("a", 1) | {FAILS: Rate(1 / 30)}, 20, "FermataReconcileFails", POOL),
    Case("it has failed now and then", leader("a", 1) | {FAILS: Rate(1 / 30, 600, 700)}, 25),
    Case("unusable", leader("a", 1) | {READY: level(0)}, 20, "FermataPolicyNotReady", POOL),
    Case("unusable for a while", leader("a", 1) | {READY: level(1, (600, 0), (1200, 1))}, 22),
    Case("every third late", leader("a", 1) | decisions(0.1, fallbacks=0.03), 60, "FermataFallbacks", POOL),
    Case("one in fifty late", leader("a", 1) | decisions(0.1, fallbacks=0.002), 60),
    Case(
        "never asked",
        leader("a", 1) | {'fermata_fallbacks_total{pool="p",reason="OutOfDistribution"}': Rate(0.1)},
        60, "FermataFallbacks", POOL,
    ),
    Case("loading", leader("a", 1) | decisions(0.1, fallbacks=0.03, reason=reasons.POLICY_LOADING), 60),
    Case("pods are refused", leader("a", 1) | {AMISS: level(2)}, 40, "FermataStagesAmiss", POOL),
    Case("pods wait for a node", leader("a", 1) | {AMISS: level(2, (1200, 0))}, 40),
    Case("paused", leader("a", 1) | {PAUSED: level(1)}, 20, "FermataHoldingPaused", POOL),
    Case("one in ten slow", leader("a", 1) | decisions(0.5, slow=0.05), 40, "FermataDecisionsSlow", POOL),
    Case("one in a thousand slow", leader("a", 1) | decisions(5.0, slow=0.005), 40),
    Case(
        "one of many lacks a right",
        leader("a", 1) | requests("a", 20.0) | requests("b", 0.6, 0.1),
        20, "FermataApiErrors", {"instance": "b"},
    ),
    Case("conflicts", leader("a", 1) | requests("a", 0.6, 0.3, code="409"), 20),
    Case("all requests fail", leader("a", 1) | requests("a", 0.6, 0.6, code="none"), 20, "FermataApiErrors",
         {"instance": "a"}),
    Case("a quota", leader("a", 1) | pool(3, level(0)), 15, "FermataNothingMoves", POOL),
    Case("all are held", leader("a", 1) | pool(3, level(0), state="held"), 30),
    Case("it moves", leader("a", 1) | pool(3, level(2)), 30),
    Case("it moves at times", leader("a", 1) | pool(3, level(0, (300, 1), (420, 0))), 15),
]  # fmt: skip


def _promtool(*arguments: str, text: str | None = None) -> str:
    """Run promtool, and return what it says."""
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _written(values: list[float | None]) -> str:
    """Write samples as promtool reads them; what is not scraped any more is stale."""
    return " ".join("stale" if value is None else f"{value:g}" for value in values)


def _told(fires: str, labels: Labels) -> dict[str, Any]:
    """Return an alert as it should be, its texts filled in."""
    rule = RULES[fires]

    def filled(text: str) -> str:
        return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels.get(found[1], ""), text)

    annotations = {key: filled(text) for key, text in rule["annotations"].items()}
    return {"exp_labels": rule["labels"] | labels, "exp_annotations": annotations}


def _group(case: Case, interval_s: int) -> dict[str, Any]:
    """Write one case as promtool reads it."""
    expected = [
        {
            "eval_time": f"{case.at_min}m",
            "alertname": name,
            "exp_alerts": [_told(name, case.labels or {})] if name == case.fires else [],
        }
        for name in RULES
    ]
    series = [
        {"series": name, "values": _written(each.values(interval_s, 60 * case.at_min))}
        for name, each in case.series.items()
    ]
    return {
        "name": case.name,
        "interval": f"{interval_s}s",
        "input_series": series,
        "alert_rule_test": expected,
    }


@pytest.mark.parametrize("interval_s", [15, pytest.param(60, marks=pytest.mark.slow)])
def test_each_alert_fires_where_it_should_and_no_other_does(interval_s: int, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(SPEC), encoding="utf-8")
    groups = [_group(case, interval_s) for case in CASES]
    whole = {"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": groups}
    (tmp_path / "test.yaml").write_text(json.dumps(whole), encoding="utf-8")
    _promtool("test", "rules", str(tmp_path / "test.yaml"))


def test_every_alert_is_seen_to_fire() -> None:
    assert {case.fires for case in CASES} - {""} == RULES.keys()


def test_prometheus_reads_rules_and_all_that_the_dashboard_asks(tmp_path: Path) -> None:
    variables = {"$pool": ".*", "$__rate_interval": "1m"}
    panels = [asked.expression for asked in _asked() if asked.where not in RULES]
    assert panels
    for name, value in variables.items():
        panels = [expression.replace(name, value) for expression in panels]
    records = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(panels)]
    file = tmp_path / "rules.yaml"
    for groups in (SPEC["groups"], [{"name": "dashboard", "rules": records}]):
        file.write_text(json.dumps({"groups": groups}), encoding="utf-8")
        assert "SUCCESS" in _promtool("check", "rules", str(file))


def test_no_slowdown_is_shown_that_there_cannot_be(tmp_path: Path) -> None:
    """Within its lowest bucket a quantile is taken for anything from 0 on, and no workflow is faster than alone."""
    (panel,) = (asked.expression for asked in _asked() if asked.where.startswith("Bounded slowdown"))
    bucket = 'fermata_workflow_slowdown_bucket{pool="p",policy="m",le="%s"}'
    counts = [{"series": bucket % le, "values": "0+1x40"} for le in ("1.0", "1.5", "+Inf")]
    query = panel.replace("$pool", ".*").replace("$__rate_interval", "5m")
    asked = {"expr": query, "eval_time": "10m", "exp_samples": [{"labels": '{pool="p"}', "value": 1}]}
    test = {"interval": "15s", "input_series": counts, "promql_expr_test": [asked]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"tests": [test]}), encoding="utf-8")
    _promtool("test", "rules", str(tmp_path / "test.yaml"))


def test_names_and_types_are_as_prometheus_wants_them() -> None:
    metrics = Metrics()
    metrics.announce("p", "m")
    metrics.observe_request("GET", "/", 404)
    assert _promtool("check", "metrics", text=generate_latest(metrics.registry).decode()) == ""
