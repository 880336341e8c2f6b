"""`fermata release`: let stages start that are held, now and for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fermata.cli.clusters import Kubeconfig, Namespace, ask, expect_stage, namespace_of, set_release

if TYPE_CHECKING:
    from fermata.operator.cluster import Cluster

app = typer.Typer(add_completion=False)


@app.command()
def release(
    workflow: Annotated[str, typer.Argument(help="Name of the Workflow.")],
    stages: Annotated[list[str] | None, typer.Argument(help="Only these stages; all of them if none.")] = None,
    namespace: Namespace = None,
    undo: Annotated[bool, typer.Option(help="Let the policy hold them again.")] = False,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Let held stages of a workflow start; hold them no more.

    They start as soon as executors are free for them. Sets the annotation fermata.dev/release of the Workflow, to "*"
    or to the names of the stages.
    """
    for line in ask(
        kubeconfig,
        lambda cluster: _release(cluster, workflow, stages or [], namespace_of(namespace, kubeconfig), undo=undo),
    ):
        print(line)


async def _release(cluster: Cluster, workflow: str, stages: list[str], namespace: str, *, undo: bool) -> list[str]:
    from fermata.operator.cluster import workflow_path

    def value(raw: dict[str, Any]) -> str | None:
        return ",".join(_named(raw, stages, f"{namespace}/{workflow}", undo=undo)) or None

    what = f"workflow {workflow!r} in namespace {namespace!r}"
    return _told(await set_release(cluster, workflow_path(namespace, workflow), what, value), stages, undo=undo)


def _named(raw: dict[str, Any], stages: list[str], title: str, *, undo: bool) -> list[str]:
    """Return what the annotation is to name."""
    from fermata.operator.explain import stage_names
    from fermata.operator.facts import released_stages
    from fermata.operator.names import ANNOTATION_RELEASE

    known = stage_names(raw)
    for stage in stages:
        expect_stage(raw, stage, title)
    if not stages:
        return [] if undo else ["*"]
    before = (raw["metadata"].get("annotations") or {}).get(ANNOTATION_RELEASE, "")
    released = released_stages(before, known)
    if undo:
        return [name for name in known if name in released and name not in stages]
    return ["*"] if "*" in before else [name for name in known if name in released or name in stages]


def _told(raw: dict[str, Any], stages: list[str], *, undo: bool) -> list[str]:
    """Return what that means for each stage."""
    from fermata.operator.explain import stage_names

    rows = {row["name"]: row for row in (raw.get("status") or {}).get("stages") or []}
    lines = []
    for name in stages or stage_names(raw):
        row = rows.get(name, {})
        state = str(row.get("state", "Pending"))
        held = state == "Held" or bool(row.get("heldSince"))  # between two of its tasks a stage runs, and is held
        if state in ("Running", "Succeeded", "Failed", "Skipped") and not held:
            lines.append(f"stage {name}: {state.lower()} already")
        elif undo:
            lines.append(f"stage {name}: may be held again")
        else:
            lines.append(f"stage {name}: released" + (", it was held" if held else ""))
    return lines
