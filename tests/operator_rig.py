"""An operator as its own process against a control plane: what the operator's end-to-end tests stand on.

The control plane is the embedded one, or a real one where there is one (tests/real_plane.py). Everything is read back
over HTTP with the official client, as a user would.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes.client
import kubernetes.config
import kubernetes.utils
import yaml
from kubernetes.client.exceptions import ApiException
from tests.kube_fixtures import PlaneThread
from tests.real_plane import JOBS, free_port, real_plane

from fermata.operator.crds import manifests
from fermata.sim.kube import Options

GROUP, VERSION = "fermata.dev", "v1alpha1"
PATIENCE_S = float(os.environ.get("FERMATA_TEST_PATIENCE_S", "150"))
DEPLOY = Path(__file__).parents[1] / "deploy"
#: Resources of the operator's that lie in no namespace.
OF_CLUSTER = {"namespaces", "executorpools", "executorpools/status"}
Raw = dict[str, Any]


@contextlib.contextmanager
def control_plane(folder: Path, slots: int = 16, given: list[Raw] | None = None) -> Iterator[Path]:
    """Give the kubeconfig of a control plane that serves the CRDs, and put the operator's own beside it.

    Args:
        folder: an existing one, for the control plane's files and both kubeconfigs.
        slots: executor slots.
        given: the operator's account and rights; those that ship if None.
    """
    if JOBS:
        with real_plane(folder, slots) as plane:
            install_crds(plane.kubeconfig)
            give_rights(plane.kubeconfig, given)
            with clean_slate(plane.kubeconfig):
                yield plane.kubeconfig
        return
    with PlaneThread(Options(slots=slots, job_backoff_s=0.2), folder, manifests()) as kube:
        give_rights(kube.kubeconfig, given)
        yield kube.kubeconfig


def install_crds(kubeconfig: Path) -> None:
    """Create the CRDs in a real cluster, where they are not there yet, and wait until they are served."""
    api = kubernetes.client.ApiextensionsV1Api(kubernetes.config.new_client_from_config(str(kubeconfig)))
    for manifest in manifests():
        try:
            api.create_custom_resource_definition(manifest)
        except ApiException as error:
            if error.status != 409:
                raise
    objects = Cluster(kubeconfig).objects

    def served() -> bool:
        try:
            objects.list_cluster_custom_object(GROUP, VERSION, "executorpools")
            objects.list_cluster_custom_object(GROUP, VERSION, "workflows")
        except ApiException as error:
            if error.status != 404:
                raise
            return False
        return True

    wait_until(served, "the custom resources are not served")


@contextlib.contextmanager
def clean_slate(kubeconfig: Path) -> Iterator[None]:
    """Take away, at the end, the workflows and pools of a cluster that other tests are to use as well."""
    try:
        yield
    finally:
        objects = Cluster(kubeconfig).objects
        objects.delete_collection_namespaced_custom_object(GROUP, VERSION, "default", "workflows")
        objects.delete_collection_cluster_custom_object(GROUP, VERSION, "executorpools")


def rights() -> list[Raw]:
    """Return namespace, account, roles and bindings as they ship."""
    files = [DEPLOY / "base/namespace.yaml", DEPLOY / "base/rbac.yaml"]
    return [item for file in files for item in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def rights_to_turns() -> list[Raw]:
    """Return the same for an operator that may let pods through their gates, too."""
    file = DEPLOY / "overlays/turns/rbac.yaml"
    return [*rights(), *yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def rights_within(watched: str) -> list[Raw]:
    """Return the same for an operator of one namespace, as the chart makes them with `watchNamespace`."""
    found: list[Raw] = []
    for item in rights():
        found.append(item)
        if item["kind"] == "ClusterRole":
            rest = [rule for rule in item["rules"] if not OF_CLUSTER.issuperset(rule["resources"])]
            # Events of pools lie in the namespace default.
            rules = {"default": [rule for rule in rest if rule["resources"] == ["events"]], watched: rest}
            item["rules"] = [rule for rule in item["rules"] if rule not in rest]
            found += [_in_namespace(item, name, rules=rules[name]) for name in rules]
        elif item["kind"] == "ClusterRoleBinding":
            reference = {**item["roleRef"], "kind": "Role"}
            found += [_in_namespace(item, name, roleRef=reference) for name in {"default", watched}]
        for rule in item.get("rules", []):
            if "resourceNames" in rule:
                rule["resourceNames"] = [f"{name}-{watched}" for name in rule["resourceNames"]]
    return found


def _in_namespace(item: Raw, namespace: str, **changed: Any) -> Raw:
    metadata = {**item["metadata"], "namespace": namespace}
    return {**item, "kind": item["kind"].removeprefix("Cluster"), "metadata": metadata, **changed}


def give_rights(kubeconfig: Path, given: list[Raw] | None = None) -> Path:
    """Create the operator's account with its rights, and write its kubeconfig beside the one given."""
    client = kubernetes.config.new_client_from_config(str(kubeconfig))
    for manifest in given or rights():
        with contextlib.suppress(kubernetes.utils.FailToCreateError):
            kubernetes.utils.create_from_dict(client, manifest)
    wanted = {"spec": {"expirationSeconds": 7200}}
    made = kubernetes.client.CoreV1Api(client).create_namespaced_service_account_token("fermata", "fermata", wanted)
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    config["users"] = [{"name": user["name"], "user": {"token": made.status.token}} for user in config["users"]]
    path = operators_own(kubeconfig)
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def operators_own(kubeconfig: Path) -> Path:
    """Return where the operator's kubeconfig lies, beside the administrator's."""
    return kubeconfig.with_name("kubeconfig-operator")


def template(seconds: float, exit_code: int = 0) -> Raw:
    """Return a pod template that takes its time on the embedded control plane and on a real one."""
    return {
        "metadata": {
            "annotations": {"fermata.dev/sim-seconds": str(seconds), "fermata.dev/sim-exit-code": str(exit_code)}
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": "busybox", "command": ["sh", "-c", f"sleep {seconds}; exit {exit_code}"]}
            ],
        },
    }


def stage(name: str, seconds: float = 0.5, *parents: str, exit_code: int = 0, **fields: Any) -> Raw:
    """Return a stage of pods that take some seconds."""
    return {
        "name": name,
        "dependsOn": list(parents),
        "estimateSeconds": max(round(seconds), 1),
        "template": template(seconds, exit_code),
        **fields,
    }


class OperatorProcess:
    """`fermata operator` as a child process.

    Args:
        kubeconfig: of the cluster; the operator's own beside it is used where there is one.
        folder: where its log goes.
        arguments: further ones of the command line.
        pod: who it is; a second one of the same name is the first one restarted, and waits for no lease.
    """

    def __init__(self, kubeconfig: Path, folder: Path, *arguments: str, pod: str = "operator-0") -> None:
        self.port = free_port()
        own = operators_own(kubeconfig)
        kubeconfig = own if own.exists() else kubeconfig
        self.log = folder / f"operator-{self.port}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "fermata.cli", "operator",
                    "--kubeconfig", str(kubeconfig), "--metrics-port", str(self.port), *arguments,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "POD_NAME": pod},
            )  # fmt: skip

    def wait_ready(self) -> None:
        """Wait until it decides."""

        def ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                return bool(self.get("/readyz") == "ok\n")
            return False

        wait_until(ready, "the operator is not ready")

    def get(self, path: str) -> str:
        """Read a path of its metrics port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Stop it with SIGTERM and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return int(self.process.returncode)


class Cluster:
    """What a user does with a cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        client = kubernetes.config.new_client_from_config(str(kubeconfig))
        self.objects = kubernetes.client.CustomObjectsApi(client)
        self.core = kubernetes.client.CoreV1Api(client)
        self.batch = kubernetes.client.BatchV1Api(client)
        self.client = client

    def pool(self, name: str, **spec: Any) -> None:
        """Create a pool."""
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "ExecutorPool", "metadata": {"name": name}, "spec": spec}
        self.objects.create_cluster_custom_object(GROUP, VERSION, "executorpools", body)

    def submit(self, name: str, pool: str, stages: list[Raw], namespace: str = "default", **spec: Any) -> None:
        """Create a workflow."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "Workflow",
            "metadata": {"name": name},
            "spec": {"poolName": pool, "stages": stages, **spec},
        }
        self.objects.create_namespaced_custom_object(GROUP, VERSION, namespace, "workflows", body)

    def status(self, name: str, namespace: str = "default") -> Raw:
        """Return the status of a workflow."""
        found = self.objects.get_namespaced_custom_object(GROUP, VERSION, namespace, "workflows", name)
        return dict(found.get("status") or {})

    def row(self, name: str) -> Raw:
        """Return the columns that `kubectl get fwf` shows of a workflow."""
        client = kubernetes.client.ApiClient(self.client.configuration)
        client.set_default_header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        shown = kubernetes.client.CustomObjectsApi(client)
        table = shown.get_namespaced_custom_object(GROUP, VERSION, "default", "workflows", name)
        columns = [column["name"] for column in table["columnDefinitions"]]
        return dict(zip(columns, table["rows"][0]["cells"], strict=True))

    def pool_status(self, name: str) -> Raw:
        """Return the status of a pool."""
        found = self.objects.get_cluster_custom_object(GROUP, VERSION, "executorpools", name)
        return dict(found.get("status") or {})

    def wait_for(self, name: str, condition: str = "Succeeded", value: str = "True", namespace: str = "default") -> Raw:
        """Wait until a condition of a workflow has a value, and return its status."""
        wait_until(
            lambda: condition_of(self.status(name, namespace), condition).get("status") == value,
            lambda: f"{name} is not {condition}={value}: {self.status(name, namespace)}",
        )
        return self.status(name, namespace)

    def wait_for_pool(self, name: str, condition: str, value: str) -> Raw:
        """Wait until a condition of a pool has a value, and return its status."""
        wait_until(
            lambda: condition_of(self.pool_status(name), condition).get("status") == value,
            lambda: f"pool {name} is not {condition}={value}: {self.pool_status(name)}",
        )
        return self.pool_status(name)

    def jobs(self, workflow: str) -> dict[str, Any]:
        """Return the Jobs of a workflow by stage."""
        found = self.batch.list_namespaced_job("default", label_selector=f"{GROUP}/workflow={workflow}").items
        return {job.metadata.labels[f"{GROUP}/stage"]: job for job in found}

    def events(self, name: str) -> list[tuple[str, str]]:
        """Return reason and message of the Events about an object."""
        found = self.core.list_event_for_all_namespaces(field_selector=f"involvedObject.name={name}").items
        return [(event.reason, event.message) for event in found]


class Starts:
    """Counts, by watching, every Job and pod that appears for a stage, and the pods that are unfinished at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.jobs: Counter[tuple[str, str]] = Counter()
        self.pods: Counter[tuple[str, str, str]] = Counter()
        self.most: Counter[str] = Counter()  # unfinished pods at once that wait at no gate, by pool
        self._unfinished: dict[str, str] = {}  # pool of each pod, by uid
        self._seen: set[str] = set()
        self._watches = [kubernetes.watch.Watch(), kubernetes.watch.Watch()]
        calls: list[Callable[..., Any]] = [
            cluster.batch.list_job_for_all_namespaces,
            cluster.core.list_pod_for_all_namespaces,
        ]
        self._threads = [
            threading.Thread(target=self._follow, args=pair, daemon=True)
            for pair in zip(self._watches, calls, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def _follow(self, watch: Any, call: Callable[..., Any]) -> None:
        with contextlib.suppress(Exception):  # the control plane goes away at the end of the test
            for event in watch.stream(call, label_selector=f"{GROUP}/pool", timeout_seconds=900):
                meta = event["object"].metadata
                if isinstance(event["object"], kubernetes.client.V1Pod):
                    self._occupy(event["object"], gone=event["type"] == "DELETED")
                if meta.uid in self._seen:
                    continue
                self._seen.add(meta.uid)
                key = (meta.labels[f"{GROUP}/workflow"], meta.labels[f"{GROUP}/stage"])
                index = (meta.labels or {}).get("batch.kubernetes.io/job-completion-index")
                if index is None:
                    self.jobs[key] += 1
                else:
                    self.pods[(*key, index)] += 1

    def _occupy(self, pod: Any, *, gone: bool) -> None:
        self._unfinished[pod.metadata.uid] = pod.metadata.labels[f"{GROUP}/pool"]
        if gone or pod.spec.scheduling_gates or pod.status.phase in ("Succeeded", "Failed"):
            self._unfinished.pop(pod.metadata.uid)
        self.most |= Counter(self._unfinished.values())

    def stop(self) -> None:
        """Stop watching."""
        for watch in self._watches:
            watch.stop()


def condition_of(status: Raw, kind: str) -> Raw:
    """Return a condition of a status, or an empty one."""
    return next((dict(row) for row in status.get("conditions") or [] if row["type"] == kind), {})


def stages_of(status: Raw) -> dict[str, Raw]:
    """Return the stages of a status by name."""
    return {row["name"]: row for row in status.get("stages") or []}


def wait_until(condition: Callable[[], bool], message: str | Callable[[], str]) -> None:
    """Wait until something holds, asking less and less often; fail with a message if it never does."""
    end, pause_s = time.monotonic() + PATIENCE_S, 0.02
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, 0.2)
    raise AssertionError(message() if callable(message) else message)
