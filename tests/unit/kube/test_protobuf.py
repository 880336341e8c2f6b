"""Protobuf bodies: what Go's clients write is read as the JSON object that it stands for."""

from __future__ import annotations

import pytest

from fermata.sim.kube.errors import ApiError
from fermata.sim.kube.protobuf import _message, decode


def body(version: str, kind: str, raw: bytes) -> bytes:
    unknown = _message("k8s.io.apimachinery.pkg.runtime.Unknown")()
    unknown.typeMeta.apiVersion, unknown.typeMeta.kind, unknown.raw = version, kind, raw
    return b"k8s\x00" + unknown.SerializeToString()


def test_a_pod_with_what_json_writes_in_its_own_way() -> None:
    pod = _message("k8s.io.api.core.v1.Pod")()
    pod.metadata.name, pod.metadata.namespace = "p", ""
    pod.metadata.labels["a"] = ""
    pod.metadata.creationTimestamp.SetInParent()
    container = pod.spec.containers.add()
    container.name = "c"
    container.resources.requests["cpu"].string = "500m"
    container.livenessProbe.handler.httpGet.port.type = 1
    container.livenessProbe.handler.httpGet.port.strVal = "http"
    container.livenessProbe.periodSeconds = 0
    source = container.envFrom.add().configMapRef
    source.localObjectReference.name = "settings"
    pod.spec.volumes.add().volumeSource.emptyDir.SetInParent()
    pod.spec.volumes[0].name = "tmp"
    pod.status.startTime.seconds = 1767323045
    assert decode(body("v1", "Pod", pod.SerializeToString())) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": ""}},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "resources": {"requests": {"cpu": "500m"}},
                    "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 0},
                    "envFrom": [{"configMapRef": {"name": "settings"}}],
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
        "status": {"startTime": "2026-01-02T03:04:05Z"},
    }


def test_bytes_are_base64_and_micro_times_keep_their_fraction() -> None:
    secret = _message("k8s.io.api.core.v1.Secret")()
    secret.data["key"] = b"value"
    assert decode(body("v1", "Secret", secret.SerializeToString()))["data"] == {"key": "dmFsdWU="}
    lease = _message("k8s.io.api.coordination.v1.Lease")()
    lease.spec.renewTime.seconds, lease.spec.renewTime.nanos = 1767323045, 250_000_000
    spec = decode(body("coordination.k8s.io/v1", "Lease", lease.SerializeToString()))["spec"]
    assert spec == {"renewTime": "2026-01-02T03:04:05.250000Z"}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{}", 400),
        (b"k8s\x00\xff\xff\xff", 400),
        (body("v1", "Pod", b"\xff\xff"), 400),
        (body("fermata.dev/v1alpha1", "Workflow", b""), 415),
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        decode(data)
    assert caught.value.code == code
