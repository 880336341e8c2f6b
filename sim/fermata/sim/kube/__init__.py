"""An embedded control plane: enough of Kubernetes, in one process on loopback, to run workflows for real.

`kubectl`, kopf and the official Python client use it unchanged. There are no containers: pods take the time that
their annotations say, or run a local command. In a test:

    async with ControlPlane(Options(slots=2), manifests=crds) as plane:
        ...  # plane.url, plane.kubeconfig (a path)

From the command line: `fermata local up`, then `export KUBECONFIG=.fermata/local/kubeconfig`.

Pods say what they do by annotations on the pod (a Job's pod template):

    fermata.dev/sim-seconds: "2.5"      runs 2.5 s; "2,3,4" by completion index
    fermata.dev/sim-exit-code: "0,0,1"  ends so; by completion index where a list
    fermata.dev/sim-failures: "2"       the first two runs of each task fail with exit code 1
    fermata.dev/run-local: "true"       runs the container's command here, with `allow_local_commands` only

Reading order: `store` (objects and history), `api` (verbs), `kinds/` (what each kind adds), `server` (HTTP),
`janitor` (what deletion entails), `controllers/` (clients like any other), `plane` (all of it together).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fermata.sim.kube.plane import ControlPlane, Options

__all__ = ["ControlPlane", "Options"]


def __getattr__(name: str) -> Any:
    """Import the control plane with its first use: asking whether one is up needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fermata.sim.kube import plane

    return getattr(plane, name)
