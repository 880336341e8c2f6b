"""How an operator runs, as its command line or the environment says, checked before anything is started."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from fermata.policy.errors import InputError

LEASE_S = 15.0
_LEASE_AT_MOST_S = 600.0
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Options:
    """How an operator runs.

    Raises:
        InputError: there can be no such namespace, Lease or address.
    """

    kubeconfig: str | None = None
    namespace: str | None = None  # None: all of them
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None  # None: no metrics and probes
    record: Path | None = None
    lease_namespace: str | None = None  # None: where the operator runs
    lease_s: float = LEASE_S

    def __post_init__(self) -> None:
        for what, name in (("namespace", self.namespace), ("lease namespace", self.lease_namespace)):
            if name is not None and not _NAMESPACE.fullmatch(name):
                raise InputError(f"{what} {name!r}: expected up to 63 of a-z, 0-9 and -, the first and last no -")
        if not self.metrics_host:  # an empty variable of a script, and not: every address of the machine
            raise InputError("metrics host '': expected an address, such as 127.0.0.1 or ::1, or * for all")
        if not 1.0 <= self.lease_s <= _LEASE_AT_MOST_S:  # not a number is in no range
            raise InputError(f"lease seconds {self.lease_s:g}: expected 1 to {_LEASE_AT_MOST_S:g}")


def options_from_environment() -> Options:
    """Return the options of an operator that kopf's own command line started.

    Raises:
        InputError: they cannot be used.
    """
    record = os.environ.get("FERMATA_RECORD")
    return Options(
        kubeconfig=os.environ.get("KUBECONFIG"),
        metrics_host=os.environ.get("FERMATA_METRICS_HOST") or "127.0.0.1",
        metrics_port=_port(os.environ.get("FERMATA_METRICS_PORT")),
        record=Path(record) if record else None,
        lease_namespace=os.environ.get("FERMATA_LEASE_NAMESPACE") or None,
    )


def _port(text: str | None) -> int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise InputError(f"FERMATA_METRICS_PORT {text!r}: expected a port, 0 to 65535") from None
