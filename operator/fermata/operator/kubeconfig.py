"""What kubeconfigs say of their current context, several of them merged as kubectl merges them.

The client's own merge is another one: there the last file says which context is the current one, so that a command
would go to another cluster than kubectl does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml

from fermata.policy.errors import InputError

Said = dict[str, Any]
T = TypeVar("T")

# What is used of a context, a cluster, a user and its program, and the types that kubectl takes.
_TEXTS = (
    *("cluster", "user", "namespace"),
    *("server", "tls-server-name", "proxy-url", "certificate-authority", "certificate-authority-data"),
    *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
    *("token", "tokenFile", "username", "password", "as"),
    *("apiVersion", "command"),  # of a program
)
_TYPES = {**dict.fromkeys(_TEXTS, str), "insecure-skip-tls-verify": bool, "exec": dict, "auth-provider": dict}
_NAMES = {str: "text", bool: "true or false", dict: "a mapping", list: "a list"}


class Current(NamedTuple):
    """The current context: its cluster, its user (empty: nobody) and its namespace, if it says one."""

    cluster: Said
    user: Said
    namespace: str | None

    def alone(self) -> Said:
        """Return a kubeconfig of nothing else."""
        return {
            "current-context": "current",
            "contexts": [{"name": "current", "context": {"cluster": "its", "user": "its"}}],
            "clusters": [{"name": "its", "cluster": self.cluster}],
            "users": [{"name": "its", "user": self.user}],
        }


class _Loader(yaml.SafeLoader):
    """Reads what looks like a date as the text that it is, as kubectl does: it may be none, as 2026-02-30."""


_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: str(node.value))


def read_current(files: str) -> Current:
    """Read a kubeconfig, or several, written as in $KUBECONFIG: of whatever they say twice, the first one counts.

    Raises:
        InputError: there is none, or it is none, or names no cluster.
    """
    found = [Path(os.path.expanduser(name)) for name in files.split(os.pathsep) if name]
    found = [file for file in found if file.exists()]
    if not found:
        raise InputError("no such file; expected a kubeconfig", file=files)
    contents = [(_content(file), file) for file in found]
    name = next((said["current-context"] for said, _ in contents if said.get("current-context")), None)
    if name is None:
        raise InputError("expected a kubeconfig with a current-context", file=files)
    context, _ = _entry(contents, "context", name)
    if context is None:
        raise InputError(f"current-context: there is no context {name!r}", file=files)
    cluster, folder = _entry(contents, "cluster", context.get("cluster"))
    if cluster is None:
        raise InputError(f"context {name!r}: there is no cluster {context.get('cluster')!r}", file=files)
    cluster = _from(folder, cluster, "certificate-authority")
    user, folder = _entry(contents, "user", context.get("user"))
    # Without a user, or with one that is not there, kubectl asks as nobody.
    user = _from(folder, user or {}, "client-certificate", "client-key", "tokenFile")
    program = user.get("exec") or {}
    if os.sep in program.get("command", ""):  # else it is looked for on the PATH
        user["exec"] = _from(folder, program, "command")
    return Current(cluster, user, context.get("namespace"))


def _entry(contents: Sequence[tuple[Said, Path]], kind: str, name: Any) -> tuple[Said | None, Path]:
    """Return the first entry of a name, and the folder of the file that has it; None if there is none."""
    for said, file in contents:
        entries = _typed(said.get(f"{kind}s") or [], list, f"{kind}s", file)
        for place, each in enumerate(entries):
            if _typed(each, dict, f"{kind}s[{place}]", file).get("name") == name:
                return _sound(each.get(kind) or {}, f"{kind} {name!r}", file), file.absolute().parent
    return None, Path()


def _sound(said: Any, what: str, file: Path) -> Said:
    """Return what is said without what is null or empty, or raise an InputError that names what is of a wrong type."""
    said = {key: value for key, value in _typed(said, dict, what, file).items() if value not in (None, "")}
    for key, expected in _TYPES.items():
        _typed(said.get(key, expected()), expected, f"{what}: {key}", file)
    return {**said, "exec": _sound(said["exec"], f"{what}: exec", file)} if "exec" in said else said


def _typed(value: Any, expected: type[T], what: str, file: str | Path) -> T:
    """Return a value of the type that kubectl takes, or raise an InputError that names what is of another one."""
    if not isinstance(value, expected):
        given = type(value).__name__  # and not the value, which may be a secret
        raise InputError(f"{what}: expected {_NAMES[expected]}, got {given}", file=file)
    return value


def _from(folder: Path, said: Said, *names: str) -> Said:
    """Return what is said, with the files that it names relative to a folder made absolute."""
    return {**said, **{name: str(folder / said[name]) for name in names if said.get(name)}}


def _content(file: Path) -> Said:
    """Return what a kubeconfig says, which may be nothing, or raise an InputError unless it is a mapping."""
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a safe one
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from error
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 at byte {error.start}; expected a kubeconfig", file=file) from error
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        line = mark.line + 1 if mark else None
        raise InputError("broken YAML; expected a kubeconfig", file=file, line=line) from error
    except RecursionError as error:
        raise InputError("nested too deeply; expected a kubeconfig", file=file) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(f"expected a kubeconfig, got a {type(content).__name__}", file=file)
    _typed(content.get("current-context") or "", str, "current-context", file)
    return content
