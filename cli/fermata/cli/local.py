"""`fermata local`: an embedded control plane on this machine, to try workflows without a cluster."""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from fermata.cli.extras import need
from fermata.cli.options import check_folder, path
from fermata.policy.errors import FermataError, InputError

if TYPE_CHECKING:
    from fermata.sim.kube.local import State

app = typer.Typer(
    help="Try Fermata without a cluster: a control plane in a process.\n\n"
    "It has an API server, Jobs, a scheduler and simulated pods, and listens on loopback.",
    no_args_is_help=True,
    add_completion=False,
)

_START_LIMIT_S = 30.0
_ANSWER_LIMIT_S = 10.0
Folder = Annotated[Path, typer.Option("--dir", parser=path, help="Where its kubeconfig, state and log lie.")]
_FOLDER = Path(".fermata/local")


@app.command()
def up(
    context: typer.Context,
    slots: Annotated[int, typer.Option(min=1, help="Executor slots on each node.")] = 4,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes.")] = 1,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    folder: Folder = _FOLDER,
    foreground: Annotated[
        bool, typer.Option("--foreground/--detach", help="Stay in the terminal until Ctrl-C, or go to the background.")
    ] = False,
    install_crds: Annotated[bool, typer.Option(help="Install Fermata's resources.")] = True,
    crds: Annotated[
        Path | None, typer.Option(parser=path, help="A folder of further manifests (*.yaml) to install at the start.")
    ] = None,
    allow_local_commands: Annotated[
        bool, typer.Option(help="Let pods annotated fermata.dev/run-local run their command on this machine.")
    ] = False,
    time_scale: Annotated[float, typer.Option(min=0.001, help="Simulated seconds of a pod per real second.")] = 1.0,
    default_seconds: Annotated[float, typer.Option(min=0.0, help="How long a pod runs that does not say.")] = 1.0,
    job_backoff_seconds: Annotated[
        float, typer.Option(min=0.0, help="Pause before a Job replaces a failed pod; doubles with each failure.")
    ] = 10.0,
) -> None:
    """Start a control plane and say how to reach it."""
    need("sim")
    check_folder(folder)
    from fermata.sim.kube.local import log_file, read_state, serve

    if not foreground:
        state, is_ours = read_state(folder), False
        if state is None:
            state, is_ours = _start_detached(folder, log_file(folder), sys.argv[1:])
        if is_ours:
            _tell(state, folder, allow_local_commands=allow_local_commands)
            return
        others = _not_applied(context, state)
        told = f"; not applied to it: {', '.join(others)} (fermata local down first)" if others else ""
        print(f"already up: {state.url}, process {state.pid}{told}")
        _tell_usage(folder)
        return
    from fermata.operator.crds import manifests as own_manifests
    from fermata.sim.kube.plane import Options

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    options = Options(
        slots=slots,
        nodes=nodes,
        port=port,
        time_scale=time_scale,
        default_s=default_seconds,
        job_backoff_s=job_backoff_seconds,
        allow_local_commands=allow_local_commands,
    )
    manifests = own_manifests() if install_crds else []
    manifests += _read_manifests(crds) if crds is not None else []
    serve(options, folder, manifests, partial(_tell, folder=folder, allow_local_commands=allow_local_commands))


@app.command()
def status(
    folder: Folder = _FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say whether it is up, and what its pods do.

    Also how many slots it has. Exits 1 when it is down.
    """
    from fermata.sim.kube.local import read_state

    state = read_state(folder)
    if state is None:
        print(json.dumps({"up": False}) if as_json else f"down ({folder})")
        raise typer.Exit(1)
    phases = _pod_phases(state, folder)
    if as_json:
        slots = state.slots * state.nodes
        print(json.dumps({"up": True, "url": state.url, "pid": state.pid, "slots": slots, "pods": phases}))
        return
    told = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())) or "none"
    print(f"up: {state.url}, process {state.pid}, {state.nodes} x {state.slots} slots; pods: {told}")
    _tell_usage(folder)


@app.command()
def down(folder: Folder = _FOLDER) -> None:
    """Stop it, and forget one that was killed."""
    from fermata.sim.kube.local import stop

    print("stopped" if stop(folder) else f"nothing was up ({folder})")


def _not_applied(context: typer.Context, state: State) -> list[str]:
    """Return the options that were given and are not known to be what the control plane that is up has."""
    same = {"slots": state.slots, "nodes": state.nodes, "port": urlsplit(state.url).port}
    found = []
    for option in context.command.params:
        name, value = str(option.name), context.params.get(str(option.name))
        given = (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
        if not given or name in ("folder", "foreground") or (name in same and value == same[name]):
            continue
        if name == "port" and value == 0:  # any will do
            continue
        found.append(option.secondary_opts[0] if value is False and option.secondary_opts else option.opts[0])
    return found


def _start_detached(folder: Path, log: Path, arguments: list[str]) -> tuple[State, bool]:
    """Return the control plane that is up then, and whether it is the one that was started: two may be at once."""
    from fermata.sim.kube.local import is_up, read_state

    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "fermata.cli", *[item for item in arguments if item != "--detach"], "--foreground"]
    log.write_bytes(b"")
    with log.open("ab") as output:  # each line at the end, whoever else writes there
        process = subprocess.Popen(  # noqa: S603 - ourselves, with our own arguments
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    ends = time.monotonic() + _START_LIMIT_S
    try:
        # Ended, and one is up or about to be: another that was started meanwhile.
        while (not (ended := process.poll() is not None) or is_up(folder)) and time.monotonic() < ends:
            state = read_state(folder)
            if state is not None and (ended or state.pid == process.pid):
                return state, not ended
            time.sleep(0.02)
    except KeyboardInterrupt:
        process.terminate()
        raise
    process.terminate()
    process.wait()
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    why = last[0].removeprefix("fermata: ") if last else "no output"
    kind = InputError if process.returncode == InputError.exit_code else FermataError
    raise kind(f"the control plane did not start: {why} (see {log})")


def _read_manifests(folder: Path) -> list[dict[str, Any]]:
    from fermata.operator.manifests import documents_of

    if not folder.is_dir():
        raise InputError(f"expected a folder of manifests at {folder}")
    found: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.yaml")):
        for document in documents_of(file):
            if not isinstance(document.content, dict):
                given = type(document.content).__name__
                raise InputError(f"expected an object, got {given}", file=file, line=document.line_of(()))
            for key in ("apiVersion", "kind"):
                if not isinstance(document.content.get(key), str):
                    raise InputError(f"expected an object with {key}", file=file, line=document.line_of(()))
            found.append(document.content)
    return found


def _pod_phases(state: State, folder: Path) -> dict[str, int]:
    """Return how many pods are in each phase.

    Raises:
        FermataError: the control plane does not answer, or not as an API server does.
    """
    import urllib.request
    from http.client import HTTPException

    from fermata.sim.kube.local import log_file

    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy knows this machine's loopback
    try:
        with direct.open(f"{state.url}/api/v1/pods", timeout=_ANSWER_LIMIT_S) as answer:
            pods = json.load(answer)["items"]
    except (OSError, HTTPException, ValueError, KeyError) as error:  # a timeout is an OSError, broken JSON a ValueError
        told = f"the control plane at {state.url}, process {state.pid}, does not answer: {error}"
        raise FermataError(f"{told} (see {log_file(folder)})") from error
    return Counter(pod.get("status", {}).get("phase", "Unknown") for pod in pods)


def _tell(state: State, folder: Path, *, allow_local_commands: bool) -> None:
    print(f"control plane up at {state.url}: {state.nodes} x {state.slots} executor slots (process {state.pid})")
    run = "the commands of pods annotated fermata.dev/run-local run on this machine"
    print(f"  pods are simulated; {run if allow_local_commands else 'their commands are not run'}")
    _tell_usage(folder)


def _tell_usage(folder: Path) -> None:
    print(f"  export KUBECONFIG={shlex.quote(str((folder / 'kubeconfig').resolve()))}", flush=True)
