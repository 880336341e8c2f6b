"""`fermata policy`: look into policies."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from fermata.cli.explain_model import explain
from fermata.cli.headroom import headroom
from fermata.cli.options import path
from fermata.policy.wording import printable

_LINE = 100  # characters of a list that is printed in full

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Look into policies.")


@app.command()
def info(
    policy: Annotated[str, typer.Argument(help="An ONNX file, or the name of a built-in policy.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a policy as the operator would, and say what it is."""
    from fermata.policy.allocation_policy import PART as ALLOCATION
    from fermata.policy.allocation_policy import AllocationPolicy
    from fermata.policy.graph_policy import GraphPolicy
    from fermata.policy.heuristics.base import Heuristic
    from fermata.policy.onnx_policy import OnnxPolicy
    from fermata.policy.queue_policy import QueuePolicy
    from fermata.policy.registry import load
    from fermata.policy.slot_scores import PART as SCORES

    loaded = load(policy)
    facts: dict[str, object] = {"name": loaded.name}
    if isinstance(loaded, Heuristic):
        facts |= {"kind": "heuristic", "summary": loaded.summary, "parameters": loaded.settings()}
    if isinstance(loaded, OnnxPolicy | GraphPolicy | QueuePolicy | AllocationPolicy):
        told = {key: value for key, value in loaded.metadata.items() if key != "theta"}  # its weights, once more
        for part in (ALLOCATION, SCORES):
            if isinstance(told.get(part), dict):
                told[part] = {key: value for key, value in told[part].items() if key != "theta"}
        facts |= {"kind": "onnx", "sha256": loaded.digest, **told}
    if as_json:
        print(json.dumps(facts))
        return
    scores = facts.pop("scores", None)
    settings = loaded.settings() if isinstance(loaded, Heuristic) else {}
    if settings:
        facts["parameters"] = f"{len(settings)}, written {loaded.name.partition(':')[0]}:NAME=VALUE,..."
    for key, value in facts.items():
        print(printable(f"{key}: {_in_short(value)}"))  # a file may be anybody's
    for key, setting in settings.items():
        print(f"  {key}={setting['value']}: {setting['meaning']}")
    _show_scores(loaded.name, scores)


def _in_short(value: object) -> str:
    """Return what fits a line: names in full, and of what is long how much there is."""
    if isinstance(value, dict | list) and not value:
        return "none"
    if isinstance(value, dict):
        return f"{', '.join(sorted(value))} (--json shows them)"
    if isinstance(value, list):
        told = ", ".join(str(each) for each in value)
        return told if len(told) <= _LINE else f"{len(value)} (--json shows them)"
    return str(value)


def _show_scores(policy: str, scores: object) -> None:
    """Print a model's scores as a table, if they are such as `fermata evaluate --json` prints."""
    from fermata.cli.tables import scores_table, show
    from fermata.training.evaluate import Score, conditions_of

    if not isinstance(scores, dict) or not isinstance(scores.get("scenarios"), dict) or not scores["scenarios"]:
        return
    with suppress(TypeError, ValueError):  # of another tool, whose figures have other names or are no numbers
        table = scores_table(policy, [Score(**each) for each in scores["scenarios"].values()], conditions_of(scores))
        print()
        show(table)


@app.command("list")
def list_() -> None:
    """List the built-in policies.

    Their parameters are in brackets; `fermata policy info` says what these mean.
    """
    from fermata.policy.registry import HEURISTICS, LEARNED

    for name in sorted(HEURISTICS):
        parameters = ", ".join(sorted(HEURISTICS[name].parameters))
        print(f"{name:16} {HEURISTICS[name].summary}" + (f" ({parameters})" if parameters else ""))
    for name, summary in LEARNED.items():
        print(f"{name:16} a model: {summary}")


@app.command()
def replay(
    file: Annotated[
        Path, typer.Argument(parser=path, help="Decisions recorded by fermata operator or fermata simulate --record.")
    ],
    policy: Annotated[
        str | None, typer.Option(help="Ask this policy; by default the one that decided, if it is built in.")
    ] = None,
) -> None:
    """Ask a policy again in every recorded state.

    Exits 1 if an answer differs from the recorded one.
    """
    from fermata.policy.errors import InputError
    from fermata.policy.record import loads
    from fermata.policy.record import replay as ask_again
    from fermata.policy.registry import load
    from fermata.sim.files import numbered_lines, shown_name

    same = different = 0
    for number, line in numbered_lines(file, None):
        try:
            record = loads(line)
        except InputError as error:
            raise InputError(error.message, file=shown_name(file), line=number) from error
        fallback = load(record.labels.get("fallback", ["sjf"])[0])
        asked = policy or record.policy
        if ask_again(record, load(asked), fallback) == record.steps:
            same += 1
        else:
            different += 1
            # An operator's times are seconds since 1970, of which fewer digits would not be told apart.
            at_s = f"{record.state.now_s:.13g} s"
            print(f"{shown_name(file)}:{number}: at {at_s} {record.policy} decided otherwise than {asked} does")
    if not same + different:
        raise InputError("holds no decisions; expected what --record wrote", file=shown_name(file))
    print(f"{same} decisions the same, {different} different")
    raise typer.Exit(1 if different else 0)


app.command()(explain)
app.command()(headroom)
