"""Reviews: questions about identity and rights, posted like objects, answered at once and stored nowhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fermata.sim.kube.access import Attributes, Rights, Tokens, User, named_user
from fermata.sim.kube.clock import stamp
from fermata.sim.kube.errors import ApiError, bad_request

if TYPE_CHECKING:
    from fermata.sim.kube.resources import Obj

#: The shortest life of a token that the API server gives.
_LEAST_S = 600


class Reviews:
    """Answers reviews.

    Args:
        rights: what users may do.
        tokens: whose tokens are whose.
    """

    def __init__(self, rights: Rights, tokens: Tokens) -> None:
        self._rights, self._tokens = rights, tokens

    def answer(self, kind: str, review: Obj, user: User, namespace: str) -> Obj:
        """Return the status of a review.

        Args:
            kind: of the review.
            review: as posted.
            user: who posted it.
            namespace: that it was posted in, for LocalSubjectAccessReview.

        Raises:
            ApiError: 400 for a review that asks nothing.
        """
        spec = review.get("spec") or {}
        match kind:
            case "SelfSubjectReview":
                return {"userInfo": user.described()}
            case "SelfSubjectRulesReview":
                return self._rules_of(user, str(spec.get("namespace") or ""))
            case "TokenReview":
                found = self._tokens.user(str(spec.get("token") or ""))
                return {"authenticated": False} if found is None else {"authenticated": True, "user": found.described()}
            case "SelfSubjectAccessReview":
                return self._may(user, spec, "")
        asked = named_user(str(spec.get("user") or ""), spec.get("groups") or ())
        return self._may(asked, spec, namespace)

    def _may(self, user: User, spec: Obj, namespace: str) -> Obj:
        resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if resource:
            plural, sub = resource.get("resource", ""), resource.get("subresource")
            wanted = Attributes(
                verb=resource.get("verb", ""),
                group=resource.get("group", ""),
                resource=f"{plural}/{sub}" if sub else plural,
                namespace=resource.get("namespace") or namespace,
                name=resource.get("name", ""),
            )
        elif path:
            wanted = Attributes(verb=path.get("verb", ""), path=path.get("path", ""))
        else:
            raise bad_request("exactly one of nonResourceAttributes or resourceAttributes must be specified")
        return {"allowed": self._rights.allow(user, wanted)}

    def _rules_of(self, user: User, namespace: str) -> Obj:
        rules = [rule for home, rule in self._rights.rules(user) if home in ("", namespace)]
        return {
            "resourceRules": [rule for rule in rules if rule.get("resources")],
            "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
            "incomplete": False,
        }


def issue_token(tokens: Tokens, namespace: str, name: str, request: Obj) -> Obj:
    """Answer a TokenRequest.

    Raises:
        ApiError: 404 where there is no such account, 400 for a time that is none.
    """
    spec = request.get("spec") or {}
    seconds = spec.get("expirationSeconds")
    if seconds is not None and not isinstance(seconds, int):
        raise bad_request(f"spec.expirationSeconds must be a number, not {seconds!r}")
    if seconds is not None and seconds < _LEAST_S:
        message = f"spec.expirationSeconds: Invalid value: {seconds}: may not specify a duration less than 10 minutes"
        raise ApiError(422, "Invalid", message)
    token, expires_s = tokens.issue(namespace, name, seconds)
    return {
        **request,
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "status": {"token": token, "expirationTimestamp": stamp(datetime.fromtimestamp(expires_s, UTC))},
    }
