"""`fermata hpc train`: an inspector, or a policy over the queue or a window of it, from a log to an ONNX file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fermata.cli.hpc.options import AsJson, CleaningName, Estimates, Log, Part, Seed, Stretch, configured, load
from fermata.cli.interrupts import resumable
from fermata.cli.options import check_apart, check_model, model_file, parameter, path
from fermata.cli.progress import progress_bar
from fermata.policy.errors import InputError

if TYPE_CHECKING:
    from fermata.sim.hpc.jobs import JobLog
    from fermata.training.hpc.config import InspectorConfig
    from fermata.training.hpc.runs import Kept
    from fermata.training.hpc.search_config import InspectorSearchConfig, QueueConfig
    from fermata.training.hpc.window_config import WindowConfig

    Config = InspectorConfig | InspectorSearchConfig | QueueConfig | WindowConfig

_SETTINGS = """key=number, key=[...] or key="text", of which a shell takes the quotes unless it is 'key="text"'"""


@resumable()
def train(
    log: Log,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", parser=path, help="Where to write the model (.onnx); the folder FILE.run keeps the run."
        ),
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            help="The scheduler that is inspected: sjf with ppo and saf+easy/skip with search, if not given; "
            "queue and window have none."
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="ppo: as SchedInspector; search: our own; queue: a policy over the queue; window: Deep Back-Filling."
        ),
    ] = "ppo",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help='Change an option, such as epochs=20 or reward="native".')
    ] = None,
    part: Part = "train",
    cleaning: CleaningName = "archive",
    estimates: Estimates = "user",
    stretch: Stretch = 1.0,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Train an inspector or a scheduler, and export it as ONNX.

    An inspector accepts or rejects what a scheduler does.

    `ppo` is SchedInspector's training; `search` imitates a tuned reservation and then searches around it, with a price
    on the wait; `queue` is no inspector but a policy of its own, and `window` is Deep Back-Filling's agent.
    docs/training-config.md has the options of --set. Run it again to go on where it was ended.
    """
    from fermata.cli.extras import need

    need("training")
    from fermata.sim.json_values import only_finite
    from fermata.training.hpc.runs import Trained, kept_beside

    if method not in ("ppo", "search", "queue", "window"):
        raise InputError(f"--method: expected ppo, search, queue or window, got {method!r}")
    if policy is not None and method in ("queue", "window"):
        raise InputError(f"--policy is the scheduler that is inspected; --method {method} decides alone")
    check_model(out)
    chosen = {"seed": seed} | dict(parameter(text, expected=_SETTINGS) for text in settings or [])
    config, steps = _config(method, policy, chosen)
    for name in ("policy", "start", "yardstick"):
        check_apart({"--out": out, name: model_file(getattr(config, name, ""))})
    given = load(log, cleaning, estimates, seed, stretch)
    is_there = out.is_file()
    rows: list[Any] = []
    with kept_beside(out, Trained.of(method, given, part, config)) as kept, progress_bar("training") as progress:

        def tell(row: Any) -> None:
            rows.append(row)
            progress(row.number / max(steps, 1))

        _train(given, config, part, tell, kept, out)
    if as_json:
        told = {"out": str(out), "log": given.name, "config": config.model_dump(), "rows": list(map(vars, rows))}
        print(json.dumps(only_finite(told)))
        return
    as_trained = {"cleaning": (cleaning, "archive"), "estimates": (estimates, "user"), "stretch": (stretch, 1.0)}
    options = ["--log", "LOG" if log == "-" else log]
    for name, (value, default) in as_trained.items():
        options += [f"--{name}", str(value)] if value != default else []
    done = "written"
    if is_there and kept is not None and kept.was_done:
        done = f"was trained already (without the folder {kept.path.parent} it is trained anew)"
    print(f"{out} {done}; next: fermata hpc evaluate {shlex.join(options + _in_use(config, out))}")


def _config(method: str, policy: str | None, chosen: dict[str, Any]) -> tuple[Config, int]:
    """Return the configuration of a method with the options that were chosen, and how many steps it takes.

    Raises:
        InputError: an option that it does not have.
    """
    from fermata.training.hpc.config import InspectorConfig
    from fermata.training.hpc.search_config import InspectorSearchConfig, QueueConfig
    from fermata.training.hpc.window_config import WindowConfig

    if method == "queue":
        queue = configured(QueueConfig, chosen)
        return queue, queue.generations
    if method == "window":
        window = configured(WindowConfig, chosen)
        return window, window.iterations
    inspected = {} if policy is None else {"policy": policy}
    if method == "ppo":
        inspector = configured(InspectorConfig, inspected | chosen)
        return inspector, inspector.epochs
    search = configured(InspectorSearchConfig, inspected | chosen)
    return search, search.generations


def _train(log: JobLog, config: Config, part: str, tell: Callable[[Any], None], kept: Kept | None, out: Path) -> None:
    """Train what a configuration is of, and write the model."""
    # These import torch, for seconds: what is wrong has been said by now.
    from fermata.training.hpc.config import InspectorConfig
    from fermata.training.hpc.export import export_inspector, export_queue_model, export_window_model
    from fermata.training.hpc.inspectors import search_inspector
    from fermata.training.hpc.queue import train_queue_policy
    from fermata.training.hpc.search_config import QueueConfig
    from fermata.training.hpc.train import train_inspector
    from fermata.training.hpc.window_config import WindowConfig
    from fermata.training.hpc.window_train import train_window

    if isinstance(config, QueueConfig):
        export_queue_model(train_queue_policy(log, config, part=part, on_generation=tell, kept=kept), out)
    elif isinstance(config, WindowConfig):
        export_window_model(train_window(log, config, part=part, on_iteration=tell, kept=kept), out)
    elif isinstance(config, InspectorConfig):
        export_inspector(train_inspector(log, config, part=part, on_epoch=tell, kept=kept), out)
    else:
        export_inspector(search_inspector(log, config, part=part, on_generation=tell, kept=kept), out)


def _in_use(config: Config, out: Path) -> list[str]:
    """Return the options of `fermata hpc evaluate` that use what was trained."""
    from fermata.training.hpc.search_config import QueueConfig
    from fermata.training.hpc.window_config import WindowConfig

    if isinstance(config, QueueConfig):
        return ["--policy", str(out)]
    if isinstance(config, WindowConfig):
        return ["--policy", f"window:{out}"]
    return ["--policy", config.policy, "--inspector", str(out)]
