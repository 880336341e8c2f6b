"""A control plane that goes back to a backup while an operator acts: what that says runs goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault_rig import Bench, bench
from tests.operator_rig import condition_of, stage, stages_of, wait_until

pytestmark = pytest.mark.e2e


def back_up(shared: Bench) -> Callable[[], None]:
    """Return what brings everything back to how it is now.

    As `etcdutl snapshot restore --bump-revision --mark-compacted` does: versions of objects are what they were, those
    of new writes are later than any that was ever given, and no watch goes on.
    """

    def read() -> Callable[[], None]:
        store = shared.plane.api.store
        uids, dependents = set(store._uids), {key: set(known) for key, known in store._dependents.items()}
        tables = {
            key: {name: dict(space) for name, space in table._namespaces.items()}
            for key, table in store._tables.items()
        }

        def restore() -> None:
            store.rv += 1_000_000
            store._uids, store._dependents = set(uids), {key: set(known) for key, known in dependents.items()}
            for key, table in store._tables.items():
                table._namespaces = {name: dict(space) for name, space in tables.get(key, {}).items()}
                table._history.clear()
                table.compacted = store.rv
                table.close_watches()

        return restore

    restore = shared.inside(read)
    return lambda: shared.inside(restore)


def test_a_job_that_a_restored_backup_lacks_costs_neither_its_workflow_nor_what_runs_beside_it(tmp_path: Path) -> None:
    with bench(tmp_path) as shared:
        operator = shared.operator()
        shared.cluster.pool("restored", executors=4, policy={"name": "sjf"})
        shared.cluster.submit("gone-back", "restored", [stage("x", 8.0), stage("z", 2.0), stage("y", 3.0, "z")])
        wait_until(lambda: shared.jobs["gone-back", "z"] == 1, "it does not start")
        time.sleep(1.0)
        restore = back_up(shared)
        renewals = shared.asked("update", "leases")
        wait_until(lambda: shared.jobs["gone-back", "y"] == 1, "its last stage does not start")
        now = shared.asked("update", "leases")
        assert now > renewals, "a backup that is as new as the Lease cannot be told from what is"
        wait_until(lambda: shared.asked("update", "leases") > now, "the Lease is not renewed")
        restore()  # as long before the next renewal as can be
        wait_until(lambda: operator.log.read_text().count("deciding for") == 2, "it does not begin anew")
        assert "restored from a backup" in operator.log.read_text()
        # The controllers of the control plane do not begin anew, and never see the pod of z end again.
        wait_until(lambda: stages_of(shared.cluster.status("gone-back"))["x"]["state"] == "Succeeded", "it is stopped")
        assert condition_of(shared.cluster.status("gone-back"), "Succeeded")["status"] == "Unknown"
        assert not any(job.spec.suspend for job in shared.cluster.jobs("gone-back").values())
