"""What people do to a cluster of several pools: at random, and all of it allowed."""

from __future__ import annotations

from typing import Any

from tests.late.controllers import Controllers
from tests.late.operator import LateOperator
from tests.late.server import Server

from fermata.operator import names
from fermata.operator.watches import KINDS

EAGER = ("fifo", "sjf", "srwf")
HOLDING = ("sjf-hold:tau=3,split=4", "sjf-hold:tau=20,split=4", "pair-committed:split=10", "default")
_SELECTORS: list[dict[str, Any] | None] = [
    None,
    {"matchLabels": {"team": "a"}},
    {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
    {},
]
Raw = dict[str, Any]


class People:
    """They make, edit and delete pools, namespaces and workflows, and kill operators.

    Args:
        server: where they do that.
        controllers: told how long tasks take, and which fail.
        operator: that they kill, freeze or cut off from its watches.
    """

    def __init__(self, server: Server, controllers: Controllers, operator: LateOperator) -> None:
        self.server, self.controllers, self.operator, self.rng = server, controllers, operator, server.rng
        self.policies = self.rng.choice([EAGER, EAGER + HOLDING])
        self.pools = [f"p{number}" for number in range(self.rng.randint(1, 3))]
        self.namespaces = [f"n{number}" for number in range(self.rng.randint(1, 3))]
        self.log: list[str] = []
        for name in self.namespaces:
            self.server.put("namespaces", {"metadata": {"name": name, "labels": self._labels()}})
        for name in self.pools:
            if self.rng.random() < 0.85:
                self.make_pool(name)

    def do_something(self) -> None:
        """Do one thing, whatever it is."""
        what = self.rng.choice(
            [
                self.edit_pool, self.edit_pool, self.make_any_pool, self.delete_pool, self.label_namespace,
                self.submit, self.submit, self.delete_workflow, self.delete_workflow, self.edit_workflow,
                self.edit_workflow, self.edit_workflow, self.edit_stages, self.release, self.restart, self.freeze,
                self.compact,
            ]
        )  # fmt: skip
        self.log.append(f"{self.server.timeline.stamp()} {what.__name__}")
        what()

    # Pools and namespaces

    def make_pool(self, name: str) -> None:
        if self.server.named("executorpools", "", name) is None:
            self.server.put("executorpools", {"metadata": {"name": name, "generation": 1}, "spec": self._pool_spec()})

    def make_any_pool(self) -> None:
        self.make_pool(self.rng.choice(self.pools))

    def edit_pool(self) -> None:
        if pool := self._any("executorpools"):
            spec = self._pool_spec()
            fields = self.rng.sample(sorted(spec), self.rng.randint(1, 2))
            self.server.change("executorpools", pool["metadata"]["uid"], spec={field: spec[field] for field in fields})

    def delete_pool(self) -> None:
        """Delete a pool, which may be made anew at once."""
        if pool := self._any("executorpools"):
            self.server.remove("executorpools", pool["metadata"]["uid"])
            if self.rng.random() < 0.5:
                self.make_pool(pool["metadata"]["name"])

    def label_namespace(self) -> None:
        if raw := self._any("namespaces"):
            meta = {**raw["metadata"], "labels": self._labels()}
            self.server.put("namespaces", {**raw, "metadata": meta})

    def _labels(self) -> dict[str, str]:
        return self.rng.choice([{"team": "a"}, {"team": "b"}, {}, {"team": "a", "x": "1"}])

    def _pool_spec(self) -> Raw:
        rng = self.rng
        return {
            "executors": rng.randint(1, 5),
            "policy": {"name": rng.choice(self.policies)},
            "mode": rng.choice(["Enforce"] * 3 + ["Shadow", "Off"]),
            "giveBack": rng.choice(["Stage", "Task"]),
            "decisionDeadlineSeconds": 60,  # Numba may compile
            "maxHoldSeconds": rng.choice([600, 20, 5, 0]),
            "maxWaitSeconds": rng.choice([3600, 20, 5, 0]),
            "holdWhenIdle": rng.random() < 0.2,
            "namespaceSelector": rng.choice(_SELECTORS),
        }

    # Workflows

    def submit(self) -> None:
        """Submit a workflow, unless there is one of its name."""
        rng, namespace, name = self.rng, self.rng.choice(self.namespaces), f"w{self.rng.randrange(8)}"
        if self.server.named("workflows", namespace, name):
            return
        rows: list[Raw] = []
        for stage in "abcd"[: rng.randint(1, 4)]:
            rows.append(self._stage(stage, [row["name"] for row in rows if rng.random() < 0.4]))
            key = namespace, name, stage
            self.controllers.duration_s[key] = 0.3 + 20.0 * rng.random()
            self.controllers.fails[key] = rng.choice([0] * 12 + [1, 2, 3])
        spec = {"poolName": rng.choice(self.pools), "stages": rows, "onFailure": rng.choice(["Stop", "Finish"])}
        spec |= {} if rng.random() < 0.7 else {"parallelism": rng.randint(1, 3)}
        spec |= {} if rng.random() < 0.8 else {"activeDeadlineSeconds": rng.randint(10, 80)}
        spec |= {} if rng.random() < 0.7 else {"ttlSecondsAfterFinished": rng.choice([0, 5, 30])}
        spec |= {} if rng.random() < 0.8 else {"priority": rng.choice([-50, 50])}
        spec |= {"suspend": True} if rng.random() < 0.1 else {}
        meta = {"name": name, "namespace": namespace, "generation": 1, "labels": {}, "annotations": {}}
        made = {"apiVersion": names.API_VERSION, "kind": names.WORKFLOW, "metadata": meta, "spec": spec, "status": {}}
        self.server.put("workflows", made)

    def _stage(self, name: str, parents: list[str]) -> Raw:
        rng = self.rng
        containers = [{"name": "main", "image": "busybox"}]
        row: Raw = {"name": name, "dependsOn": parents, "template": {"spec": {"containers": containers}}}
        row |= {"tasks": rng.randint(1, 4), "slots": rng.choice([1, 1, 1, 2])}
        row |= {} if rng.random() < 0.5 else {"parallelism": rng.randint(1, 3)}
        row |= {} if rng.random() < 0.3 else {"estimateSeconds": rng.randint(1, 30)}
        row |= {} if rng.random() < 0.7 else {"retries": rng.randint(1, 2)}
        return row | ({} if rng.random() < 0.9 else {"activeDeadlineSeconds": rng.randint(4, 20)})

    def edit_workflow(self) -> None:
        if raw := self._any_workflow():
            field, values = self.rng.choice(
                [
                    ("priority", [-100, 0, 100]),
                    ("parallelism", [None, 1, 2, 3]),
                    ("suspend", [True, False]),
                    ("onFailure", ["Stop", "Finish"]),
                    ("activeDeadlineSeconds", [None, 20, 60, 200]),
                ]
            )
            self.server.change("workflows", raw["metadata"]["uid"], spec={field: self.rng.choice(values)})

    def edit_stages(self) -> None:
        """Take the last stage away, or change how wide one may be."""
        if raw := self._any_workflow():
            rows = [dict(row) for row in raw["spec"]["stages"]]
            if len(rows) > 1 and self.rng.random() < 0.5:
                rows.pop()
            else:
                self.rng.choice(rows)["parallelism"] = self.rng.randint(1, 4)
            self.server.change("workflows", raw["metadata"]["uid"], spec={"stages": rows})

    def release(self) -> None:
        if raw := self._any_workflow():
            noted = self.rng.choice([{}, {names.ANNOTATION_RELEASE: "*"}, {names.ANNOTATION_RELEASE: "b"}])
            self.server.put("workflows", {**raw, "metadata": {**raw["metadata"], "annotations": noted}})

    def delete_workflow(self) -> None:
        if raw := self._any_workflow():
            self.controllers.delete_workflow(raw["metadata"]["uid"], foreground=self.rng.random() < 0.5)

    def _any_workflow(self) -> Raw | None:
        rows = self.server.objects["workflows"].values()
        rest = [raw for raw in rows if not raw["metadata"].get("deletionTimestamp")]
        return self.rng.choice(rest) if rest else None

    def _any(self, kind: Any) -> Raw | None:
        rows = list(self.server.objects[kind].values())
        return self.rng.choice(rows) if rows else None

    # Operators

    def restart(self) -> None:
        self.operator.restart()

    def freeze(self) -> None:
        """Let the operator's lease run out, and another one take it later."""
        self.operator.leads = False
        self.server.timeline.after(5.0 * self.rng.random(), self.operator.restart)

    def compact(self) -> None:
        """Have a watch lose the thread: the operator lists."""
        self.server.list_all(self.operator.store, self.rng.choice(KINDS))

    # The end

    def make_room(self) -> None:
        """Let every workflow that is left run to its end."""
        for name in self.pools:
            self.make_pool(name)
        for uid in list(self.server.objects["executorpools"]):
            self.server.change("executorpools", uid, spec={"executors": 8, "namespaceSelector": None})
        for uid, raw in list(self.server.objects["workflows"].items()):
            if not raw["metadata"].get("deletionTimestamp"):
                self.server.change("workflows", uid, spec={"suspend": None})

    def tidy_up(self) -> None:
        """Delete all workflows."""
        for uid, raw in list(self.server.objects["workflows"].items()):
            if not raw["metadata"].get("deletionTimestamp"):
                self.controllers.delete_workflow(uid, foreground=self.rng.random() < 0.5)
