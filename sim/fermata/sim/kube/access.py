"""Who asks, and what they may: service account tokens, and RBAC as the stored roles and bindings say.

A request without a token comes from this machine and may do everything, as with a cluster's own administrator file; a
request with one is held to the rights of its account. Knows objects, never HTTP.

Source: the rules of Kubernetes' RBAC authorizer, its aggregated roles and its check of escalation.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fermata.sim.kube.errors import ApiError, forbidden
from fermata.sim.kube.selectors import selects
from fermata.sim.kube.store import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from fermata.sim.kube.api import Api
    from fermata.sim.kube.resources import Obj, Resource
    from fermata.sim.kube.store import Change, Table

RBAC_GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
_ACCOUNT = "system:serviceaccount:"
_DEFAULT_TOKEN_S = 3600
_ADMIN_ROLE: Obj = {
    "apiVersion": f"{RBAC_GROUP}/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "cluster-admin"},
    "rules": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ],
}
#: The rights that every account has: discovery, and questions about itself.
_EVERYBODYS: tuple[Obj, ...] = (
    {
        "verbs": ["get"],
        "nonResourceURLs": ["/", "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*",
                            "/readyz", "/version", "/version/"],
    },
    {
        "verbs": ["create"],
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
    },
    {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
)  # fmt: skip
ADMIN_MANIFESTS: tuple[Obj, ...] = (_ADMIN_ROLE,)


@dataclass(frozen=True, slots=True)
class User:
    """Who asks."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    def described(self) -> Obj:
        """Return the user as reviews show it."""
        described: Obj = {"username": self.name, "groups": list(self.groups)}
        return {**described, "uid": self.uid} if self.uid else described


LOCAL_ADMIN = User("fermata:local", (MASTERS, AUTHENTICATED))


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked for: a verb on a resource, or on a path that is none.

    Args:
        verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, ...
        group: API group.
        resource: plural, with its subresource as `pods/log`; empty for a path.
        namespace: empty for all, and for kinds that have none.
        name: of the object, empty for a collection.
        path: of the URL, where it names no resource.
    """

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """Return the user that a service account is."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"{_ACCOUNT}{namespace}:{name}", groups, uid)


def named_user(name: str, groups: Iterable[str]) -> User:
    """Return a user by its name, as impersonation gives it."""
    if name.startswith(_ACCOUNT) and name.count(":") == 3:
        _, _, namespace, account = name.split(":")
        return service_account(namespace, account)
    return User(name, (*groups, AUTHENTICATED))


@dataclass(frozen=True, slots=True)
class _Token:
    namespace: str
    name: str
    uid: str
    expires_s: float


class Tokens:
    """Tokens of service accounts; they end with their time, their account, and the process.

    Args:
        api: where the accounts are.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._issued: dict[str, _Token] = {}

    def issue(self, namespace: str, name: str, seconds: int | None) -> tuple[str, float]:
        """Return a new token of a service account and when it ends, in seconds since the epoch.

        Raises:
            ApiError: 404 where there is no such account.
        """
        entry = self._api.entry(self._api.resources.core("serviceaccounts"), namespace, name)
        token = secrets.token_urlsafe(32)
        expires_s = time.time() + (seconds or _DEFAULT_TOKEN_S)
        self._issued[token] = _Token(namespace, name, entry.uid, expires_s)
        return token, expires_s

    def user(self, token: str) -> User | None:
        """Return whose token this is, or None where it is nobody's."""
        known = self._issued.get(token)
        if known is None or known.expires_s < time.time():
            return None
        accounts = self._api.table(self._api.resources.core("serviceaccounts"))
        entry = accounts.get(known.namespace, known.name)
        if entry is None or entry.uid != known.uid:
            return None
        return service_account(known.namespace, known.name, known.uid)


class Rights:
    """What users may do, read from the stored roles and bindings whenever these change.

    Args:
        api: where they are.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        #: (namespace or empty for everywhere, subject, rules)
        self._grants: list[tuple[str, Obj, list[Obj]]] | None = None
        self._rules: dict[User, list[tuple[str, Obj]]] = {}
        api.store.listeners.append(self._on_change)

    def allow(self, user: User, wanted: Attributes) -> bool:
        """Return whether a user may do this."""
        if MASTERS in user.groups:
            return True
        return any(
            (not namespace or namespace == wanted.namespace) and _covers(rule, wanted)
            for namespace, rule in self.rules(user)
        )

    def rules(self, user: User) -> list[tuple[str, Obj]]:
        """Return the rules that hold for a user, each with its namespace, empty for everywhere."""
        if self._grants is None:
            self._grants = self._read()
        if user not in self._rules:
            everybodys = [("", rule) for rule in _EVERYBODYS] if AUTHENTICATED in user.groups else []
            self._rules[user] = everybodys + [
                (namespace, rule)
                for namespace, subject, rules in self._grants
                if _is(user, subject, namespace)
                for rule in rules
            ]
        return self._rules[user]

    def _on_change(self, table: Table, change: Change) -> None:
        del change
        if table.key[0] == RBAC_GROUP:
            self._grants = None
            self._rules.clear()

    def _read(self) -> list[tuple[str, Obj, list[Obj]]]:
        roles = self._rules_of_roles()
        grants: list[tuple[str, Obj, list[Obj]]] = []
        for binding in [*self._all("clusterrolebindings"), *self._all("rolebindings")]:
            namespace, ref = _namespace(binding), binding["roleRef"]
            home = namespace if ref["kind"] == "Role" else ""
            rules = roles.get((ref["kind"], home, ref["name"]), [])
            grants += [(namespace, subject, rules) for subject in binding.get("subjects") or []]
        return grants

    def check_escalation(self, user: User, obj: Obj, resource: Resource) -> None:
        """Refuse a role, or a binding of one, that grants what its author does not have.

        Args:
            user: the author.
            obj: the role or binding as it would be stored.
            resource: its kind.

        Raises:
            ApiError: 403 that names the rights that lack.
        """
        namespace, is_binding = _namespace(obj), resource.plural.endswith("bindings")
        ref = obj["roleRef"] if is_binding else {"kind": obj["kind"], "name": _name(obj)}
        plural = "roles" if ref["kind"] == "Role" else "clusterroles"
        verb, group = "bind" if is_binding else "escalate", RBAC_GROUP
        if MASTERS in user.groups or self.allow(user, Attributes(verb, group, plural, namespace, ref["name"])):
            return
        rules = obj.get("rules") or []
        if is_binding:
            home = namespace if ref["kind"] == "Role" else ""
            rules = self._rules_of_roles().get((ref["kind"], home, ref["name"]), [])
        lacking = [
            wanted for rule in rules for wanted in _single_rights(rule, namespace) if not self.allow(user, wanted)
        ]
        if lacking:
            told = ", ".join(sorted({f"{item.verb} {item.resource or item.path}" for item in lacking}))
            why = f'user "{user.name}" is attempting to grant RBAC permissions not currently held: {told}'
            raise forbidden(resource, _name(obj), why)

    def _rules_of_roles(self) -> dict[tuple[str, str, str], list[Obj]]:
        """Return the rules of every role; an aggregated one has those of the cluster roles that it selects."""
        clusters, roles = self._all("clusterroles"), self._all("roles")
        found = {(role["kind"], _namespace(role), _name(role)): role.get("rules") or [] for role in [*clusters, *roles]}
        for role in clusters:
            selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors")
            if selectors is not None:
                found["ClusterRole", "", _name(role)] = [
                    rule
                    for other in clusters
                    if other is not role and any(selects(item, other["metadata"].get("labels")) for item in selectors)
                    for rule in other.get("rules") or []
                ]
        return found

    def _all(self, plural: str) -> list[Obj]:
        resource = self._api.resources.find(RBAC_GROUP, "v1", plural)
        if resource is None:
            raise RuntimeError(f"{plural} are not served")
        return [entry.load() for entry in self._api.table(resource).select(Selection())]


def denial(user: User, wanted: Attributes, resource: Resource | None) -> ApiError:
    """403 in the API server's own words."""
    if resource is None:
        why = f'User "{user.name}" cannot {wanted.verb} path "{wanted.path}"'
        return ApiError(403, "Forbidden", f"forbidden: {why}")
    scope = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {wanted.verb} resource "{wanted.resource}" in API group "{wanted.group}" {scope}'
    title = f'{resource.qualified} "{wanted.name}"' if wanted.name else resource.qualified
    details = {"name": wanted.name, "group": wanted.group, "kind": resource.plural}
    return ApiError(403, "Forbidden", f"{title} is forbidden: {why}", {key: v for key, v in details.items() if v})


def unauthorized() -> ApiError:
    """401 for a token that is nobody's."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def _covers(rule: Mapping[str, list[str]], wanted: Attributes) -> bool:
    if not _listed(rule.get("verbs"), wanted.verb):
        return False
    if not wanted.resource:
        return any(_path_fits(pattern, wanted.path) for pattern in rule.get("nonResourceURLs") or ())
    if not _listed(rule.get("apiGroups"), wanted.group):
        return False
    resources, (_, slash, sub) = rule.get("resources") or [], wanted.resource.partition("/")
    if not (_listed(resources, wanted.resource) or (slash and f"*/{sub}" in resources)):
        return False
    names = rule.get("resourceNames")
    return not names or wanted.name in names


def _single_rights(rule: Obj, namespace: str) -> Iterator[Attributes]:
    """Yield what a rule grants, one verb on one resource, name or path at a time."""
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield Attributes(verb, path=path)
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for name in rule.get("resourceNames") or ("",):
                    yield Attributes(verb, group, resource, namespace, name)


def _listed(items: Iterable[str] | None, wanted: str) -> bool:
    found = tuple(items or ())
    return wanted in found or "*" in found


def _path_fits(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


def _is(user: User, subject: Obj, namespace: str) -> bool:
    match subject.get("kind"):
        case "ServiceAccount":
            home = subject.get("namespace") or namespace
            return user.name == f"{_ACCOUNT}{home}:{subject.get('name')}"
        case "User":
            return user.name == subject.get("name")
        case "Group":
            return subject.get("name") in user.groups
    return False


def _namespace(obj: Obj) -> str:
    return str(obj["metadata"].get("namespace") or "")


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])
