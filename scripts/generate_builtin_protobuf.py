"""Write the protobuf messages of the built-in kinds that the embedded control plane serves.

They are compiled from the `generated.proto` files of two checkouts (k8s.io/api and k8s.io/apimachinery, Apache 2.0):

    pip install grpcio-tools
    python scripts/generate_builtin_protobuf.py path/to/api path/to/apimachinery
"""

from __future__ import annotations

import lzma
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from grpc_tools import protoc

TARGET = Path(__file__).parents[1] / "sim/fermata/sim/kube/kinds/builtin_protobuf.pb.xz"
APIS = ["core", "events", "batch", "apps", "coordination", "rbac", "networking", "policy", "scheduling",
        "authentication", "authorization"]  # fmt: skip
#: What may be the body of a request, by package; and what it takes along.
ROOTS = {
    "core": ["Namespace", "Pod", "Node", "Event", "ConfigMap", "Secret", "Service", "ServiceAccount", "Binding"],
    "events": ["Event"],
    "batch": ["Job"],
    "apps": ["Deployment"],
    "coordination": ["Lease"],
    "rbac": ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"],
    "networking": ["NetworkPolicy"],
    "policy": ["PodDisruptionBudget", "Eviction"],
    "scheduling": ["PriorityClass"],
    "authentication": ["TokenRequest", "TokenReview", "SelfSubjectReview"],
    "authorization": ["LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview",
                      "SubjectAccessReview"],
}  # fmt: skip
EXTRA = [".k8s.io.apimachinery.pkg.apis.meta.v1.DeleteOptions", ".k8s.io.apimachinery.pkg.runtime.Unknown"]


def compiled(api: Path, machinery: Path) -> FileDescriptorSet:
    """Return the descriptors of all files, dependencies first."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "k8s.io").mkdir()
        (root / "k8s.io/api").symlink_to(api.resolve())
        (root / "k8s.io/apimachinery").symlink_to(machinery.resolve())
        out = root / "out.pb"
        files = [f"k8s.io/api/{name}/v1/generated.proto" for name in APIS]
        code = protoc.main(["protoc", f"-I{root}", f"--descriptor_set_out={out}", "--include_imports", *files])
        if code:
            raise SystemExit(code)
        return FileDescriptorSet.FromString(out.read_bytes())


def main(api: Path, machinery: Path) -> None:
    """Keep the messages that the roots need, and write them."""
    found = compiled(api, machinery)
    messages: dict[str, DescriptorProto] = {
        f".{file.package}.{message.name}": message for file in found.file for message in file.message_type
    }
    todo = [f".k8s.io.api.{name}.v1.{kind}" for name, kinds in ROOTS.items() for kind in kinds] + EXTRA
    kept: set[str] = set()
    while todo:
        name = todo.pop()
        if name in kept or name not in messages:
            continue
        kept.add(name)
        message = messages[name]
        fields = [*message.field, *(field for nested in message.nested_type for field in nested.field)]
        todo += [field.type_name for field in fields if field.type_name]
    for file in found.file:
        rest = [message for message in file.message_type if f".{file.package}.{message.name}" in kept]
        del file.message_type[:]
        file.message_type.extend(rest)
        file.ClearField("options")
    data = lzma.compress(found.SerializeToString(), preset=9 | lzma.PRESET_EXTREME)
    TARGET.write_bytes(data)
    print(f"{TARGET}: {len(kept)} messages, {len(data)} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
