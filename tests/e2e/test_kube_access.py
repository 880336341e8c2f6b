"""Rights by token on the embedded control plane: what RBAC grants goes, everything else is refused by name."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from fermata.sim.kube import ControlPlane, Options
from fermata.sim.kube.client import Client
from fermata.sim.kube.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

pytestmark = pytest.mark.e2e

RBAC = "/apis/rbac.authorization.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
ME = {"kind": "ServiceAccount", "name": "me", "namespace": "default"}


def role(*rules: dict[str, Any], name: str = "r", kind: str = "Role") -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name}, "rules": list(rules)}


def binding(kind: str = "Role", name: str = "r", subject: dict[str, Any] | None = None) -> dict[str, Any]:
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    return {"metadata": {"name": "b"}, "roleRef": ref, "subjects": [subject or ME]}


@asynccontextmanager
async def both() -> AsyncIterator[tuple[ControlPlane, Client, Client]]:
    """A control plane, its administrator, and a service account without rights."""
    async with ControlPlane(Options(controllers=False)) as plane, Client(plane.url) as admin:
        await admin.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "me"}})
        async with Client.from_kubeconfig(plane.kubeconfig_of("default", "me")) as me:
            yield plane, admin, me


def run(test: Callable[[ControlPlane, Client, Client], Awaitable[None]]) -> None:
    async def body() -> None:
        async with both() as parts:
            await test(*parts)

    asyncio.run(body())


async def refusal(awaitable: Awaitable[Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await awaitable
    return caught.value


def test_nothing_is_granted_but_discovery_and_the_refusal_says_what_lacks() -> None:
    async def body(_plane: ControlPlane, _admin: Client, me: Client) -> None:
        assert (await me.get("/apis/batch/v1"))["kind"] == "APIResourceList"
        error = await refusal(me.create(MAPS, {"metadata": {"name": "x"}}))
        assert (error.code, error.reason) == (403, "Forbidden")
        assert error.message == (
            'configmaps is forbidden: User "system:serviceaccount:default:me" cannot create resource "configmaps" in '
            'API group "" in the namespace "default"'
        )
        assert (await refusal(me.get("/metrics"))).code == 403

    run(body)


def test_a_role_holds_in_its_namespace_for_its_verbs_and_names() -> None:
    async def body(_plane: ControlPlane, admin: Client, me: Client) -> None:
        rules = role(
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["mine"]},
        )
        await admin.create(f"{RBAC}/namespaces/default/roles", rules)
        await admin.create(f"{RBAC}/namespaces/default/rolebindings", binding())
        await me.create(MAPS, {"metadata": {"name": "mine"}})
        await me.create(MAPS, {"metadata": {"name": "other"}})
        assert len((await me.get(MAPS))["items"]) == 2
        await me.get(f"{MAPS}/mine")
        assert (await refusal(me.get(f"{MAPS}/other"))).code == 403
        assert (await refusal(me.patch(f"{MAPS}/mine", {"data": {"a": "b"}}))).code == 403
        assert (await refusal(me.delete(f"{MAPS}/mine"))).code == 403
        assert (await refusal(me.get(MAPS, watch="true"))).code == 403
        assert (await refusal(me.get("/api/v1/configmaps"))).code == 403
        assert (await refusal(me.get("/api/v1/namespaces/kube-system/configmaps"))).code == 403

    run(body)


def test_rights_come_and_go_with_their_bindings() -> None:
    async def body(_plane: ControlPlane, admin: Client, me: Client) -> None:
        bindings = f"{RBAC}/clusterrolebindings"
        await admin.create(bindings, binding("ClusterRole", "cluster-admin"))
        await me.get("/api/v1/nodes")
        await admin.delete(f"{bindings}/b")
        assert (await refusal(me.get("/api/v1/nodes"))).code == 403
        group = {"kind": "Group", "name": "system:serviceaccounts:default"}
        await admin.create(bindings, binding("ClusterRole", "cluster-admin", group))
        await me.get("/api/v1/nodes")

    run(body)


def test_subresources_are_granted_by_themselves() -> None:
    async def body(_plane: ControlPlane, admin: Client, me: Client) -> None:
        rule = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]}
        await admin.create(f"{RBAC}/clusterroles", role(rule, kind="ClusterRole"))
        await admin.create(f"{RBAC}/clusterrolebindings", binding("ClusterRole"))
        jobs = "/apis/batch/v1/namespaces/default/jobs"
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
        await me.create(jobs, {"metadata": {"name": "j"}, "spec": {"template": template}})
        assert 'resource "jobs/status"' in (await refusal(me.patch(f"{jobs}/j/status", {}))).message

    run(body)


def test_a_token_ends_with_its_account_and_a_wrong_one_is_nobodys() -> None:
    async def body(plane: ControlPlane, admin: Client, me: Client) -> None:
        async with Client(plane.url, token="guessed") as stranger:
            assert (await refusal(stranger.get("/api"))).code == 401
        await me.get("/api")
        await admin.delete("/api/v1/namespaces/default/serviceaccounts/me")
        assert (await refusal(me.get("/api"))).code == 401
        await admin.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "me"}})
        assert (await refusal(me.get("/api"))).code == 401

    run(body)


def test_tokens_and_reviews_over_the_api() -> None:
    async def body(plane: ControlPlane, admin: Client, me: Client) -> None:
        account = "/api/v1/namespaces/default/serviceaccounts/me/token"
        token = (await admin.create(account, {"spec": {"expirationSeconds": 600}}))["status"]["token"]
        assert (await refusal(me.create(account, {}))).code == 403
        review = {"spec": {"token": token}}
        told = await admin.create("/apis/authentication.k8s.io/v1/tokenreviews", review)
        assert told["status"]["user"]["username"] == "system:serviceaccount:default:me"
        async with Client(plane.url, token=token) as same:
            who = await same.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
            assert "system:serviceaccounts:default" in who["status"]["userInfo"]["groups"]
            asked = {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"}}
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            assert (await same.create(path, {"spec": asked}))["status"] == {"allowed": False}
            assert (await admin.create(path, {"spec": asked}))["status"] == {"allowed": True}
        of_me = {**asked, "user": "system:serviceaccount:default:me"}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        assert (await admin.create(path, {"spec": of_me}))["status"] == {"allowed": False}

    run(body)


def test_only_who_may_impersonate_speaks_for_others() -> None:
    async def body(plane: ControlPlane, admin: Client, me: Client) -> None:
        as_me = {"Impersonate-User": "system:serviceaccount:default:me"}
        async with admin.session.get(f"{plane.url}/api/v1/pods", headers=as_me) as answer:
            assert answer.status == 403
        async with me.session.get(f"{plane.url}/api", headers={"Impersonate-User": "root"}) as answer:
            assert answer.status == 403

    run(body)


def test_what_was_asked_for_is_counted_by_user() -> None:
    async def body(plane: ControlPlane, _admin: Client, me: Client) -> None:
        await refusal(me.get("/apis/batch/v1/namespaces/default/jobs"))
        user = "system:serviceaccount:default:me"
        assert plane.server.calls[user, "list", "batch", "jobs", "default"] == 1

    run(body)


def test_nobody_grants_more_than_they_have() -> None:
    async def body(_plane: ControlPlane, admin: Client, me: Client) -> None:
        roles = f"{RBAC}/namespaces/default/roles"
        bindings = f"{RBAC}/namespaces/default/rolebindings"
        writer = {"verbs": ["create", "update", "patch", "get"], "resources": ["roles", "rolebindings"]}
        mine = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}
        await admin.create(roles, role({"apiGroups": ["rbac.authorization.k8s.io"], **writer}, mine))
        await admin.create(bindings, binding())
        await me.create(roles, role({**mine, "verbs": ["get"]}, name="less"))
        more = {**mine, "verbs": ["get", "delete"]}
        error = await refusal(me.create(roles, role(more, name="more")))
        assert (error.code, "not currently held: delete configmaps" in str(error)) == (403, True)
        assert (await refusal(me.patch(f"{roles}/less", {"rules": [more]}))).code == 403
        await me.patch(f"{roles}/less", {"metadata": {"labels": {"a": "b"}}})
        await admin.create(roles, role(more, name="more"))
        grab = {**binding(name="more"), "metadata": {"name": "grab"}}
        assert (await refusal(me.create(bindings, grab))).code == 403
        await me.create(bindings, {**binding(name="less"), "metadata": {"name": "fine"}})
        everything = {**binding("ClusterRole", "cluster-admin"), "metadata": {"name": "all"}}
        assert (await refusal(me.create(bindings, everything))).code == 403

    run(body)


def test_who_may_bind_or_escalate_may_grant_what_they_lack() -> None:
    async def body(_plane: ControlPlane, admin: Client, me: Client) -> None:
        roles = f"{RBAC}/namespaces/default/roles"
        verbs = {"verbs": ["create", "bind", "escalate"], "resources": ["roles", "rolebindings"]}
        await admin.create(roles, role({"apiGroups": ["rbac.authorization.k8s.io"], **verbs}))
        await admin.create(f"{RBAC}/namespaces/default/rolebindings", binding())
        await me.create(roles, role({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, name="all"))
        wanted = {**binding(name="all"), "metadata": {"name": "b2"}}
        await me.create(f"{RBAC}/namespaces/default/rolebindings", wanted)
        assert (await me.create(MAPS, {"metadata": {"name": "now"}}))["metadata"]["name"] == "now"

    run(body)


def test_an_aggregated_role_has_the_rules_of_those_that_it_selects() -> None:
    async def body(_plane: ControlPlane, admin: Client, me: Client) -> None:
        roles = f"{RBAC}/clusterroles"
        whole = role(name="whole", kind="ClusterRole")
        whole["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {"to": "whole"}}]}
        await admin.create(roles, whole)
        await admin.create(f"{RBAC}/clusterrolebindings", binding("ClusterRole", "whole"))
        assert (await refusal(me.get(MAPS))).code == 403
        part = role({"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}, name="p", kind="ClusterRole")
        part["metadata"]["labels"] = {"to": "whole"}
        await admin.create(roles, part)
        assert (await me.get(MAPS))["items"] == []
        await admin.patch(f"{roles}/p", {"metadata": {"labels": {"to": "nothing"}}})
        assert (await refusal(me.get(MAPS))).code == 403

    run(body)
