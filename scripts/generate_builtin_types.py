"""Write the field types of the built-in kinds that the embedded control plane serves.

They are read off the models of the official client, so that a new Kubernetes minor is one run of this script away:

    python scripts/generate_builtin_types.py
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

from kubernetes.client import models

TARGET = Path(__file__).parents[1] / "sim/fermata/sim/kube/kinds/builtin_types.json"
ROOTS = {
    "v1/Namespace": "V1Namespace",
    "v1/Pod": "V1Pod",
    "v1/Node": "V1Node",
    "v1/Event": "CoreV1Event",
    "v1/ConfigMap": "V1ConfigMap",
    "v1/Secret": "V1Secret",
    "v1/Service": "V1Service",
    "v1/ServiceAccount": "V1ServiceAccount",
    "events.k8s.io/v1/Event": "EventsV1Event",
    "batch/v1/Job": "V1Job",
    "apps/v1/Deployment": "V1Deployment",
    "coordination.k8s.io/v1/Lease": "V1Lease",
    "rbac.authorization.k8s.io/v1/Role": "V1Role",
    "rbac.authorization.k8s.io/v1/RoleBinding": "V1RoleBinding",
    "rbac.authorization.k8s.io/v1/ClusterRole": "V1ClusterRole",
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding": "V1ClusterRoleBinding",
    "networking.k8s.io/v1/NetworkPolicy": "V1NetworkPolicy",
    "policy/v1/PodDisruptionBudget": "V1PodDisruptionBudget",
    "scheduling.k8s.io/v1/PriorityClass": "V1PriorityClass",
    "apiextensions.k8s.io/v1/CustomResourceDefinition": "V1CustomResourceDefinition",
}
# What is posted or sent along and not kept, so that it is no kind that is served.
BODIES = (
    "AuthenticationV1TokenRequest",
    "V1Binding",
    "V1DeleteOptions",
    "V1Eviction",
    "V1LocalSubjectAccessReview",
    "V1SelfSubjectAccessReview",
    "V1SelfSubjectReview",
    "V1SelfSubjectRulesReview",
    "V1SubjectAccessReview",
    "V1TokenReview",
)
PLAIN = {
    "str": "string",
    "int": "integer",
    "bool": "boolean",
    "float": "number",
    "datetime": "string",
    "bytes": "string",
    "object": "any",
}


def compact(name: str) -> str:
    """Return a type as the server reads it: a plain name, `[element]`, `{value}`, or a model's name.

    With a `?`, which `main` adds, it is only of what is an object, and any other value will do, too.
    """
    if found := re.fullmatch(r"[Ll]ist\[(.+)\]", name):
        return f"[{compact(found[1])}]"
    if found := re.fullmatch(r"Dict\[str, (.+)\]", name):
        return f"{{{compact(found[1])}}}"
    return PLAIN.get(name, name)


def release() -> str:
    """Return the Kubernetes minor whose API the client's models are made of."""
    found = re.search(r"OpenAPI document: release-([\d.]+)", inspect.getsource(inspect.getmodule(models.V1Pod)))
    assert found is not None, "the models do not say"
    return found[1]


def main() -> None:
    """Follow every type from the roots and write the table."""
    types: dict[str, dict[str, str]] = {}
    todo = [*ROOTS.values(), *BODIES]
    while todo:
        name = todo.pop()
        # The models are imported when they are first named.
        model = getattr(models, name, None)
        if name in types or model is None:
            continue
        fields = {model.attribute_map[field]: compact(kind) for field, kind in model.openapi_types.items()}
        types[name] = dict(sorted(fields.items()))
        todo += [kind.strip("[]{}") for kind in fields.values()]
    # Metadata has rules of its own, and its unknown fields are found there.
    types["V1ObjectMeta"]["selfLink"] = "string"
    # Quantities and ports are numbers or texts; the models call both `any` or `string`.
    for fields in types.values():
        for field, kind in fields.items():
            if kind == "{string}" and field in ("limits", "requests", "capacity", "allocatable", "hard", "used"):
                fields[field] = "{any}"
            if field in ("sizeLimit", "divisor"):
                fields[field] = "any"
    # The models call these `any`, since they may be something else than a schema.
    types["V1JSONSchemaProps"] |= {"additionalProperties": "V1JSONSchemaProps|boolean", "items": "V1JSONSchemaProps?"}
    table = {"release": release(), "kinds": ROOTS, "types": dict(sorted(types.items()))}
    TARGET.write_text(json.dumps(table, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{TARGET}: {len(types)} types")


if __name__ == "__main__":
    main()
