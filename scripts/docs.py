"""Write the pages that are generated from code: the command line, the resources, the metrics, the configurations.

python scripts/docs.py           # write docs/cli.md, docs/crds.md, docs/metrics.md and docs/training-config.md
python scripts/docs.py --check   # exit 1 if they are not current
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel
from typer.models import ArgumentInfo

from fermata.cli.interrupts import ended_in_a_line
from fermata.cli.main import VERBS
from fermata.operator import reasons
from fermata.operator.crds import manifests
from fermata.operator.metrics import OTHER_POLICY, POLICIES, Metrics
from fermata.policy.onnx_policy import OnnxPolicy
from fermata.policy.registry import shipped_model
from fermata.training.config import TrainConfig, shipped_configs
from fermata.training.fields import LEAST, MOST
from fermata.training.graph.config import GraphConfig, read_any
from fermata.training.hpc.config import InspectorConfig
from fermata.training.hpc.search_config import InspectorSearchConfig, QueueConfig
from fermata.training.hpc.window_config import WindowConfig
from fermata.training.slots.config import ScoresConfig
from fermata.training.spark.config import AllocationConfig

DOCS = Path(__file__).parents[1] / "docs"
CLI_EXITS = (
    "A wrong input exits 2 with one line that names the file, the line and what was expected; an option with a value "
    "that it cannot have, with a few that say how the command is used. Ctrl-C exits 130; what "
    "runs until it is stopped exits 0 then (`fermata operator`, `fermata local up --foreground`)."
)
CLI_OPTIONS = (
    "[How to install the command](deploying.md#the-command-fermata), and which extras it needs. `fermata --version` "
    "says which Fermata this is, `fermata COMMAND --help` says what is below, and `fermata --install-completion` lets "
    "the Tab key complete commands and options in new shells."
)
METRICS_LEAD = (
    "The operator serves these at `/metrics`, and `process_*` for its own CPU and memory, where it is given a "
    "`--metrics-port`, as the manifests and the chart do (8080). "
    "[Alerts and a dashboard](deploying.md#metrics-and-alerts) use them.\n\n"
    "- A histogram's name is followed by `_bucket`, `_sum` or `_count`. Beside each histogram and counter a `_created` "
    "says since when it counts.\n"
    "- The metrics of a pool end when the pool and the last of its workflows are gone, and when another operator takes "
    "over.\n"
    "- The label `policy` is the policy that acts, by its name in the pool's status; of `fermata_decision_seconds` it "
    "is the pool's own, which is only asked in mode `Shadow`. What the fallback decides is not timed.\n"
    f"- Of a pool there are the latest {POLICIES} policies, and what was counted of an earlier one ends. What ends "
    "under a policy that this operator has not asked since it began, or that is none of these any more, is counted as "
    f"`{OTHER_POLICY}`.\n"
    "- The label `reason` is one of "
    "[its reasons](crds.md#conditions-and-reasons)."
)
RESOURCES_LEAD = (
    "Durations are whole seconds in a specification and have decimals in a status. `kubectl` and `fermata validate` "
    "refuse unknown keys; of other clients the API server drops them, with a warning. `kubectl get fermata` lists both "
    "kinds."
)
REASONS_LEAD = (
    "A condition says what is the case, and its reason why. Events have reasons of these, too. Each name stands here "
    "once: the reason of a stage can also be `Suspended`, `Rejected`, `StageFailed` or `DeadlineExceeded`, and that of "
    "PolicyReady `InvalidSpec`. Of a workflow that goes on, the reason of Running and of Succeeded is what it does: "
    "`Running`, `Held`, `Waiting` or `Suspended`. Succeeded has that of a stage instead where one does not get on: "
    f"{', '.join(f'`{reason}`' for reason in reasons.AMISS)}."
)
TRAINING_LEAD = (
    "What a file for `fermata train --config FILE` may hold, and what `fermata hpc train --set` changes. "
    "[Training](training.md) says what the methods do.\n\n"
    "- A file is YAML. A dot stands for a section, and `[]` for each entry of a list: `teacher.futures` is `futures` "
    "in the section `teacher`. An absent field has its default.\n"
    "- What is wrong is told in one line that names the field. Wrong are unknown fields, too, and those that stand "
    f"twice. Any number is 0, or {LEAST:g} to {MOST:g} in size.\n"
    "- Of two numbers that are *from and to* the lower one is first."
)
TRAINING_KINDS: dict[str, type[BaseModel]] = {
    "Rollout teacher": TrainConfig,
    "Graph policies": GraphConfig,
    "Allocation on Spark": AllocationConfig,
    "Scores for tasks of several executors": ScoresConfig,
    "`fermata hpc train --method ppo`": InspectorConfig,
    "`fermata hpc train --method search`": InspectorSearchConfig,
    "`fermata hpc train --method queue`": QueueConfig,
    "`fermata hpc train --method window`": WindowConfig,
}
SCORES_BEGIN, SCORES_END = "<!-- scores:begin -->", "<!-- scores:end -->"


def pages() -> dict[Path, str]:
    """Return the generated pages and what they should hold."""
    results = DOCS / "results.md"
    return {
        DOCS / "cli.md": cli_page(),
        DOCS / "crds.md": crd_page(),
        DOCS / "metrics.md": metrics_page(),
        DOCS / "training-config.md": training_page(),
        results: with_scores(results.read_text(encoding="utf-8")),
    }


def cli_page() -> str:
    """Return the reference of all commands, read off their signatures."""
    lines = [
        "# Command line",
        "",
        "<!-- Generated by scripts/docs.py. -->",
        "",
        CLI_EXITS,
        CLI_OPTIONS,
        "",
    ]
    for verb, module in sorted(VERBS.items()):
        app: typer.Typer = importlib.import_module(module).app
        commands = app.registered_commands
        if len(commands) == 1 and app.registered_callback is None:
            lines += _command(f"fermata {verb}", commands[0].callback, level=2)
            continue
        lines += [f"## `fermata {verb}`", "", str(app.info.help), ""]
        for command in commands:
            name = command.name or command.callback.__name__.replace("_", "-")
            lines += _command(f"fermata {verb} {name}", command.callback, level=3)
    return "\n".join(lines).rstrip() + "\n"


def _command(title: str, callback: Any, level: int) -> Iterator[str]:
    hints = get_type_hints(callback, include_extras=True)
    given = inspect.signature(callback).parameters.items()
    # A context is what typer hands over, not what a person gives.
    params = [_Param.of(name, hints[name], each) for name, each in given if hints[name] is not typer.Context]
    params.sort(key=lambda param: not param.positional)
    usage = [title, *(param.usage for param in params if param.positional)]
    usage += ["[OPTIONS]"] if any(not param.positional for param in params) else []
    yield from (f"{'#' * level} `{title}`", "")
    yield from (inspect.cleandoc(callback.__doc__ or ""), "", f"    {' '.join(usage)}", "")
    if params:
        yield from ("| parameter | meaning | default |", "| --- | --- | --- |")
        yield from (f"| {param.title} | {_cell(param.info.help or '')} | {param.default} |" for param in params)
        yield ""


class _Param(NamedTuple):
    """One parameter of a command, as its signature has it."""

    name: str
    type: str
    many: bool  # it takes several values
    info: Any  # typer's Argument or Option
    given: Any  # the default

    @classmethod
    def of(cls, name: str, hint: Any, parameter: inspect.Parameter) -> _Param:
        base, info = get_args(hint)[:2]
        names = [part.__name__ for part in (get_args(base) or (base,)) if part is not type(None)]
        many = list in (get_origin(base), *map(get_origin, get_args(base)))
        return cls(name, names[0], many, info, parameter.default)

    @property
    def positional(self) -> bool:
        return isinstance(self.info, ArgumentInfo)

    @property
    def usage(self) -> str:
        name = self.info.metavar or self.name.upper()
        whole = name if self.given is inspect.Parameter.empty or name.startswith("[") else f"[{name}]"
        return f"{whole}..." if self.many and not whole.endswith("...") else whole

    @property
    def title(self) -> str:
        if self.positional:
            return f"`{self.info.metavar or self.name.upper()}`"
        flag = f"--{self.name.replace('_', '-')}"
        if self.type == "bool":
            options = self._declared or (f"{flag}/--no-{flag[2:]}" if self.given else flag,)
            return ", ".join(f"`{option}`" for declared in options for option in declared.split("/"))
        return ", ".join(f"`{option} {self.info.metavar or self.type.upper()}`" for option in self._declared or (flag,))

    @property
    def _declared(self) -> Sequence[str]:
        """What the option is called, where it says so; inside Annotated the first name stands where a default would."""
        first = () if self.info.default is ... else (self.info.default,)
        return (*first, *(self.info.param_decls or ()))

    @property
    def default(self) -> str:
        if self.given is inspect.Parameter.empty:
            return "required"
        if self.type == "bool":
            return "on" if self.given else ""
        return "" if self.given in (None, []) else f"`{self.given}`"


def crd_page() -> str:
    """Return the reference of both resources, their conditions and reasons."""
    lines = [
        "# Resources",
        "",
        "<!-- Generated by scripts/docs.py. -->",
        "",
        RESOURCES_LEAD,
        "",
    ]
    for manifest in sorted(manifests(), key=lambda crd: str(crd["spec"]["names"]["kind"]), reverse=True):
        spec = manifest["spec"]
        version = spec["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        names = spec["names"]
        lines += [
            f"## {names['kind']}",
            "",
            f"`{spec['group']}/{version['name']}`, {spec['scope'].lower()}, `kubectl get {names['shortNames'][0]}`",
            "",
        ]
        for part in ("spec", "status"):
            body = schema["properties"][part]
            lines += [f"### {names['kind']} {part}", "", _meaning(body, required=False), ""]
            lines += ["| field | type | meaning |", "| --- | --- | --- |"]
            lines += list(_fields(body, ""))
            lines.append("")
    lines += ["## Conditions and reasons", "", REASONS_LEAD, ""]
    for where, meanings in reasons.MEANINGS.items():
        lines += [f"### {where}", "", "| name | meaning |", "| --- | --- |"]
        lines += [*(f"| `{name}` | {_cell(meaning)} |" for name, meaning in meanings.items()), ""]
    return "\n".join(lines)


def _fields(schema: dict[str, Any], prefix: str) -> Iterator[str]:
    """Yield a row for each field, those of objects and of lists of objects after it."""
    required = set(schema.get("required", []))
    for name, field in schema.get("properties", {}).items():
        inner = field.get("items", field)
        path = f"{prefix}{name}" + ("[]" if "items" in field else "")
        yield f"| `{path}` | {_type(field)} | {_meaning(field, required=name in required)} |"
        if "properties" in inner and name != "template":  # Kubernetes documents pod templates
            yield from _fields(inner, f"{path}.")


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    kind = str(field.get("format") or field.get("type", "any"))
    if kind == "array":
        least = f"{field['minItems']} to " if "minItems" in field else "at most "
        return f"list of {field['items'].get('type', 'any')}, {least}{field['maxItems']}"
    bounds = [f"{sign} {field[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in field]
    return " ".join([kind, ", ".join(bounds)]).strip()


def _meaning(field: dict[str, Any], *, required: bool) -> str:
    parts = [" ".join(str(field.get("description", "")).split())]
    rules = [rule for part in (field, field.get("items", {})) for rule in part.get("x-kubernetes-validations", [])]
    parts += [f"{rule['message'][:1].upper()}{rule['message'][1:]}." for rule in rules]
    if required:
        parts.append("**Required.**")
    elif field.get("default") not in (None, "", [], {}):
        parts.append(f"Default: `{json.dumps(field['default'])}`.")
    return _cell(" ".join(part for part in parts if part))


def metrics_page() -> str:
    """Return the reference of what the operator tells Prometheus."""
    lines = [
        "# Metrics",
        "",
        "<!-- Generated by scripts/docs.py. -->",
        "",
        METRICS_LEAD,
        "",
        "| metric | type | labels | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for family in Metrics().families():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {_cell(family.meaning)} |")
    return "\n".join(lines) + "\n"


def training_page() -> str:
    """Return the reference of what a training can be told, field by field."""
    shipped = {name: type(read_any(name)) for name in shipped_configs()}
    lines = ["# Training configurations", "", "<!-- Generated by scripts/docs.py. -->", "", TRAINING_LEAD, ""]
    for title, model in TRAINING_KINDS.items():
        schema = model.model_json_schema()
        mine = ", ".join(f"`{name}`" for name, kind in shipped.items() if kind is model)
        lines += [f"## {title}", "", schema["description"], ""]
        lines += [f"Shipped: {mine} ([what they are](training.md#configurations)).", ""] if mine else []
        lines += ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [*_settings(schema, schema.get("$defs", {}), ""), ""]
    return "\n".join(lines).rstrip() + "\n"


def _settings(section: dict[str, Any], sections: dict[str, Any], prefix: str) -> Iterator[str]:
    """Yield a row for each field, those of a section after it."""
    for name, field in section["properties"].items():
        several = "items" in field
        kind = next(each for each in field.get("anyOf", [field]) if each.get("type") != "null")
        inner = sections.get((kind["items"] if several else kind).get("$ref", "").rpartition("/")[2])
        path = f"{prefix}{name}" + ("[]" if several else "")
        meaning = field.get("description") or inner["description"].partition("\n")[0]
        default = "" if inner or field.get("default") is None else f"`{json.dumps(field['default'])}`"
        default = "required" if name in section.get("required", []) else default
        yield f"| `{path}` | {_setting(kind, inner)} | {default} | {_cell(meaning)} |"
        if inner:
            yield from _settings(inner, sections, f"{path}.")


def _setting(field: dict[str, Any], section: dict[str, Any] | None) -> str:
    """Return the type of a field, with its bounds."""
    if "items" in field:
        each = " ".join([f"{'section' if section else field['items']['type']}s", *_bounds(field["items"])])
        return f"list of {each}" + (", at least one" if "minItems" in field else "")
    if section:
        return "section"
    if "prefixItems" in field:
        first = field["prefixItems"][0]
        return f"two {first['type']}s {', '.join(_bounds(first))}".strip()
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    return f"{field['type']} {', '.join(_bounds(field))}".strip()


def _bounds(field: dict[str, Any]) -> list[str]:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return [f"{sign} {field[key]:,.12g}" for key, sign in signs.items() if key in field]


def with_scores(page: str) -> str:
    """Return a page with the table between its marks written anew, from the scores in the shipped model."""
    scores = OnnxPolicy.load(shipped_model()).metadata["scores"]["scenarios"]
    rows = [
        f"| `{name}` | `{score['base']}` | {score['avg_jct_s']:.2f} | "
        f"{score['vs_base_pct']:+.2f} ± {score['vs_base_ci95']:.2f} | {score['p99_vs_base_pct']:+.1f} |"
        for name, score in scores.items()
    ]
    head = ["| scenario | base | mean JCT, s | change, % | p99, % |", "| --- | --- | --- | --- | --- |"]
    before, _, rest = page.partition(SCORES_BEGIN)
    after = rest.partition(SCORES_END)[2]
    return "\n".join([before + SCORES_BEGIN, *head, *rows, SCORES_END]) + after


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Write the pages, or with --check say which are not current."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(DOCS.parent)} is not current: python scripts/docs.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages()[path], encoding="utf-8")
        print(f"wrote {path.relative_to(DOCS.parent)}")
    return 0


if __name__ == "__main__":
    with ended_in_a_line("docs.py"):
        sys.exit(main())
