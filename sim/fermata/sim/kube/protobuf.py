"""Bodies in Kubernetes' protobuf form, which kubectl sends for the kinds that it knows: read into JSON objects.

Only read: answers are JSON, which every client that sends protobuf takes too.

Source: `k8s.io/apimachinery/pkg/runtime/serializer/protobuf` for the envelope; the messages are compiled from the
`generated.proto` files of k8s.io/api and k8s.io/apimachinery by `scripts/generate_builtin_protobuf.py`.
"""

from __future__ import annotations

import base64
import json
import lzma
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from fermata.sim.kube.clock import micro_stamp, stamp
from fermata.sim.kube.errors import bad_request, unsupported_media_type

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from fermata.sim.kube.resources import Obj

_MAGIC = b"k8s\x00"
_META = "k8s.io.apimachinery.pkg.apis.meta.v1"
_RUNTIME = "k8s.io.apimachinery.pkg.runtime"
#: Fields that Go embeds: in JSON, what is in them belongs to the object around them.
_INLINE = frozenset({"ephemeralContainerCommon", "localObjectReference", "volumeSource"})
_INLINE_OF = {("k8s.io.api.core.v1.Probe", "handler")}


@cache
def _pool() -> DescriptorPool:
    packed = files("fermata.sim.kube.kinds").joinpath("builtin_protobuf.pb.xz").read_bytes()
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(lzma.decompress(packed)).file:
        pool.Add(file)
    return pool


def decode(body: bytes) -> Obj:
    """Return the object that a protobuf body holds.

    Raises:
        ApiError: 400 for a body that is none, 415 for a kind that is known in JSON only.
    """
    if not body.startswith(_MAGIC):
        raise bad_request("the body of the request does not appear to be a protobuf message")
    try:
        envelope = _message(f"{_RUNTIME}.Unknown").FromString(body[len(_MAGIC) :])
        version, kind = envelope.typeMeta.apiVersion, envelope.typeMeta.kind
        obj = _object(_message(_name(version, kind)).FromString(envelope.raw))
    except DecodeError as error:
        raise bad_request(f"the protobuf body cannot be decoded: {error}") from error
    except KeyError as error:
        raise unsupported_media_type(
            f"{kind} of {version} is not known in protobuf form - accepted media types include: application/json, "
            "application/yaml"
        ) from error
    return {"apiVersion": version, "kind": kind, **obj}


def _name(version: str, kind: str) -> str:
    if kind == "DeleteOptions":
        return f"{_META}.{kind}"
    group, slash, number = version.rpartition("/")
    return f"k8s.io.api.{group.split('.')[0] if slash else 'core'}.{number}.{kind}"


@cache
def _message(name: str) -> type[Message]:
    found: type[Message] = GetMessageClass(_pool().FindMessageTypeByName(name))
    return found


def _object(message: Message) -> Obj:
    found: Obj = {}
    for field, value in message.ListFields():
        if field.is_repeated:
            if _is_map(field):
                of_value = field.message_type.fields_by_name["value"]
                found[field.name] = {key: _value(of_value, value[key]) for key in value}
            else:
                found[field.name] = [_value(field, item) for item in value]
        elif field.name in _INLINE or (message.DESCRIPTOR.full_name, field.name) in _INLINE_OF:
            found.update(_object(value))
        elif (told := _value(field, value)) not in ("", None):
            # Go writes every field that is no pointer; in JSON, empty texts and times are left out.
            found[field.name] = told
    return found


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _value(field: Any, value: Any) -> Any:
    """Return one value as JSON has it."""
    if field.message_type is None:
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value
    match field.message_type.full_name.rpartition(".")[2]:
        case "Time":
            return stamp(_moment(value)) if value.seconds else None
        case "MicroTime":
            return micro_stamp(_moment(value)) if value.seconds else None
        case "Quantity":
            return value.string
        case "IntOrString":
            return value.strVal if value.type else value.intVal
        case "FieldsV1":
            return json.loads(value.Raw or b"{}")
        case "RawExtension":
            return json.loads(value.raw or b"{}")
        case "ExtraValue":
            return list(value.items)
    return _object(value)


def _moment(value: Any) -> datetime:
    return datetime.fromtimestamp(value.seconds, UTC) + timedelta(microseconds=value.nanos // 1000)
