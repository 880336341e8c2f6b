"""Simulated nodes: a name, some executor slots, and the port at which their kubelet serves logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fermata.sim.kube.clock import stamp

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj


def node_manifest(name: str, slots: int, port: int) -> Obj:
    """Return a ready node.

    Args:
        name: the node's name.
        slots: how many pods, and how many CPUs, it has room for.
        port: where its kubelet listens on loopback.
    """
    room = {"pods": str(slots), "cpu": str(slots), "memory": f"{slots * 4}Gi"}
    at = stamp()
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "simulated",
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "fermata.dev/simulated": "true"},
        },
        "spec": {},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "fermata://simulated",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "kubeletVersion": "fermata",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "simulated",
                "systemUUID": "",
            },
        },
    }
