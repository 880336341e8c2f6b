"""What Prometheus can ask: the split of JCT first of all, then what the scheduler and its policies do.

One registry for each operator, so that two in one process (as in tests) do not share numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from fermata.operator import reasons
from fermata.operator.progress import WorkflowView
from fermata.operator.split import Split

_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
_LATENCY = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_SLOWDOWN = (1, 1.5, 2, 3, 5, 10, 20, 50, 100)
_RATIO = (0.1, 0.25, 0.5, 0.67, 0.8, 0.9, 1.1, 1.25, 1.5, 2, 4, 10)
_BY_POLICY = ("pool", "policy")
# Of a pool that gets a new model every night each one would be a hundred series more, for as long as an operator runs.
POLICIES = 8
# What ended under a policy that this operator has not asked: an annotation says so, and anybody may write one.
OTHER_POLICY = "other"


class Family(NamedTuple):
    """A metric under the name, and with the labels, by which Prometheus asks for it."""

    name: str  # of a histogram without its _bucket, _sum and _count
    kind: str
    labels: tuple[str, ...]
    meaning: str


class Metrics:
    """All metrics of one operator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self._policies: dict[str, dict[str, None]] = {}  # of which something is said, by pool; the latest at the end

        def seconds(name: str, text: str) -> Histogram:
            return histogram(f"fermata_workflow_{name}_seconds", text, _BY_POLICY, buckets=_SECONDS)

        self.completion = seconds("completion", "JCT of finished workflows: wait + hold + run.")
        self.wait = seconds("wait", "Part of the JCT in which no task ran and too few executors were free.")
        self.hold = seconds("hold", "Part of the JCT in which no task ran although executors were left free.")
        self.run = seconds("run", "Part of the JCT in which at least one task ran.")
        self.slowdown = histogram("fermata_workflow_slowdown", "Bounded slowdown.", _BY_POLICY, buckets=_SLOWDOWN)
        self.finished = counter(
            "fermata_workflows_finished", "Finished workflows: succeeded or failed.", ("pool", "result")
        )
        self.decision = histogram("fermata_decision_seconds", "One decision of a policy.", _BY_POLICY, buckets=_LATENCY)
        self.start_delay = histogram(
            "fermata_stage_start_seconds",
            "From the decision to start a stage until its Job exists.",
            ("pool",),
            buckets=_LATENCY,
        )
        self.estimate = histogram(
            "fermata_estimate_ratio",
            "Duration of a task over its estimate (given, corrected or learned): 1 is right, 2 took twice as long.",
            ("pool", "source"),
            buckets=_RATIO,
        )
        self.holds = counter("fermata_holds", "Stages whose hold began.", ("pool",))
        self.fallbacks = counter("fermata_fallbacks", "Decisions made by the fallback instead.", ("pool", "reason"))
        self.disagreements = counter(
            "fermata_shadow_disagreements",
            "Decisions that differ from those of a policy that is only asked: in mode Shadow, or while holding is off.",
            ("pool",),
        )
        self.executors = gauge("fermata_pool_executors", "Executors: busy or free.", ("pool", "state"))
        self.stages = gauge("fermata_pool_stages", "Stages that are ready: waiting or held.", ("pool", "state"))
        self.amiss = gauge(
            "fermata_pool_stages_amiss", f"Stages that do not get on: {', '.join(reasons.AMISS)}.", ("pool",)
        )
        self.policy_ready = gauge(
            "fermata_pool_policy_ready", "1 if its policy can decide; none in mode Off.", ("pool",)
        )
        self.holding_paused = gauge(
            "fermata_pool_holding_paused", "1 if nothing is held, whatever the policy says.", ("pool",)
        )
        self.hold_savings = gauge(
            "fermata_pool_hold_savings_ratio",
            "Share of the mean JCT that holding saves, by replay of recent workflows; negative if it costs.",
            ("pool",),
        )
        self.requests = counter(
            "fermata_api_requests", "Requests to the API server; code none: no answer.", ("verb", "code")
        )
        self.api_errors = counter(
            "fermata_api_errors",
            "Requests that failed; 409 says that the object has changed, and is tried again.",
            ("verb", "code"),
        )
        self.crashes = counter(
            "fermata_reconcile_failures",
            "Rounds of a pool's loop that failed, and are tried again; the log has the traceback.",
            ("pool",),
        )
        self.leader = gauge("fermata_leader", "1 if this operator holds the lease, and acts.", ("lease",))
        self.events_dropped = counter(
            "fermata_events_dropped",
            "Events not written: an object had too many, all together had, or the API server did not take them.",
        )
        self.build_info = gauge("fermata_build_info", "1, beside the version of the operator.", ("version",))
        self.build_info.labels(version("fermata")).set(1)

    def families(self) -> list[Family]:
        """Return all of them, as they are defined."""
        rows = [(described, metric) for metric in self._all() for described in metric.describe()]
        return [
            Family(
                described.name + ("_total" if described.type == "counter" else ""),
                described.type,
                tuple(metric._labelnames),  # which the library shows nowhere before there is a sample
                described.documentation,
            )
            for described, metric in rows
        ]

    def observe_pool(self, pool: str, executors: int, counts: Mapping[str, int], amiss: int) -> None:
        """Say how many executors of a pool are taken, and how many stages wait, are held and do not get on."""
        self.executors.labels(pool, "busy").set(counts["busy"])
        self.executors.labels(pool, "free").set(max(executors - counts["busy"], 0))
        for state in ("waiting", "held"):
            self.stages.labels(pool, state).set(counts[state])
        self.amiss.labels(pool).set(amiss)

    def observe_policy(self, pool: str, ready: bool | None) -> None:
        """Say whether a pool's own policy decides; None where nobody asks it to: no alert is due."""
        if ready is not None:
            self.policy_ready.labels(pool).set(ready)
        else:
            self.policy_ready.remove_by_labels({"pool": pool})

    def observe_savings(self, pool: str, share: float | None) -> None:
        """Say what holding saves in a pool; None where that is not known, as in its status."""
        if share is not None:
            self.hold_savings.labels(pool).set(share)
        else:
            self.hold_savings.remove_by_labels({"pool": pool})

    def announce(self, pool: str, policy: str) -> None:
        """Let what is counted of a pool begin at 0: Prometheus sees no increase where a series begins with 1."""
        for result in ("succeeded", "failed"):
            self.finished.labels(pool, result)
        for metric in (self.holds, self.disagreements, self.crashes, self.start_delay):
            metric.labels(pool)
        self.note_policy(pool, policy)
        for histogram in (self.completion, self.wait, self.hold, self.run, self.slowdown):
            histogram.labels(pool, policy)

    def withdraw(self, pool: str) -> None:
        """Take back what was said of a pool that is gone; what becomes of its workflows still counts."""
        self._remove(Gauge, pool=pool)

    def forget(self, pool: str) -> None:
        """Drop all that is said of a pool: nothing is left of it, or another operator decides now.

        Anybody who may create a Workflow may make up names of pools, and each is a hundred series.
        """
        self._policies.pop(pool, None)
        self._remove(MetricWrapperBase, pool=pool)

    def observe_request(self, verb: str, _path: str, status: int) -> None:
        """Count one request."""
        code = str(status or "none")
        self.requests.labels(verb, code).inc()
        if not 200 <= status < 300:
            self.api_errors.labels(verb, code).inc()

    def decisions(self, pool: str, policy: str) -> Histogram:
        """Return what counts the decisions of a policy in a pool, and how long each took."""
        self.note_policy(pool, policy)
        return self.decision.labels(pool, policy)

    def note_policy(self, pool: str, policy: str) -> None:
        """Note that a policy is asked in a pool now, and drop what is said of the one that was left longest ago."""
        latest = self._policies.setdefault(pool, {})
        latest.pop(policy, None)
        latest[policy] = None
        if len(latest) > POLICIES:
            oldest = next(iter(latest))
            del latest[oldest]
            self._remove(MetricWrapperBase, pool=pool, policy=oldest)

    def observe_finished(self, view: WorkflowView, policy: str, split: Split) -> None:
        """Count one finished workflow, of a pool that there is or was."""
        known = self._policies.get(view.fact.pool)
        if known is None:  # anybody may make up names of pools
            return
        policy = policy if policy in known else OTHER_POLICY
        jct_s, wait_s, held_s, run_s = split.seconds
        succeeded = view.outcome is not None and view.outcome.succeeded
        self.finished.labels(view.fact.pool, "succeeded" if succeeded else "failed").inc()
        for histogram, value in ((self.completion, jct_s), (self.wait, wait_s), (self.hold, held_s), (self.run, run_s)):
            histogram.labels(view.fact.pool, policy).observe(value)
        self.slowdown.labels(view.fact.pool, policy).observe(split.slowdown)

    def _all(self) -> list[MetricWrapperBase]:
        return [metric for metric in vars(self).values() if isinstance(metric, MetricWrapperBase)]

    def _remove(self, kind: type[MetricWrapperBase], **labels: str) -> None:
        """Drop the series that have these labels, of the metrics of a kind that are told apart by them."""
        for metric in self._all():
            if isinstance(metric, kind) and labels.keys() <= set(metric._labelnames):
                metric.remove_by_labels(labels)
