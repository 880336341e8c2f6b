"""`fermata export-onnx`: turn a finished training run into one ONNX file."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fermata.cli.options import path
from fermata.policy.errors import InputError

app = typer.Typer(add_completion=False)


@app.command("export-onnx")
def export_onnx(
    run: Annotated[Path, typer.Argument(parser=path, help="Folder that fermata train wrote.")],
    out: Annotated[Path, typer.Option(parser=path, help="The ONNX file to write.")],
    scores: Annotated[
        Path | None, typer.Option(parser=path, help="Output of fermata evaluate --json, to be kept in the file.")
    ] = None,
    card: Annotated[Path | None, typer.Option(parser=path, help="Also write a model card in Markdown.")] = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            help="Of an allocation: write it beside the network of this model, one file for both. Of scores for tasks "
            "of several executors: the model that gets them; by default the shipped one.",
        ),
    ] = None,
) -> None:
    """Export a trained policy as ONNX, checked against torch.

    Scores for tasks of several executors become part of a model that is there already.
    """
    from fermata.cli.extras import need
    from fermata.cli.options import check_apart, check_model, check_output

    need("training")
    check_model(out)
    if card is not None:
        check_output(card)
    check_apart({"--out": out, "--card": card, "--scores": scores, "--beside": beside})
    from fermata.sim.files import is_pipe_or_device
    from fermata.training import export, train
    from fermata.training.graph import export as graph_export
    from fermata.training.graph import train as graph_train
    from fermata.training.spark import export as spark_export
    from fermata.training.spark import train as spark_train

    kept = None if scores is None else _read_scores(scores)
    method = _method(run)
    if method == "scores":
        _export_scores(run, out, beside, card, kept)
        return
    trainer, exporter = {
        None: (train, export),
        "evolution": (spark_train, spark_export),
    }.get(method, (graph_train, graph_export))
    config, network = trainer.read_run(run)
    if method == "evolution" and card is not None:
        raise InputError("an allocation has no card; fermata policy info shows the metadata", file=card)
    if method != "evolution" and beside is not None:
        raise InputError("--beside is for runs that allocate executors, or that search for scores", file=run)
    if (beside is not None or card is not None) and is_pipe_or_device(out):
        raise InputError("--beside and --card read the model again; expected the name of a file", file=out)
    metadata = exporter.metadata_of(config, kept)
    if beside is None:
        difference = exporter.export_onnx(network, metadata, out)
    else:
        difference = spark_export.export_beside(network, metadata, beside, out)
    print(
        f"{out}: largest difference from torch {difference:.2g}, absolute or relative (allowed {exporter.TOLERANCE:g})"
    )
    if beside is not None:
        print(f"{out}: beside {beside}")
    if card is not None:
        from fermata.policy.model_file import load_model
        from fermata.training.card import model_card
        from fermata.training.files import write_bytes
        from fermata.training.graph.card import graph_card

        text = (model_card if method is None else graph_card)(out.stem, load_model(out).digest, metadata, config)
        # The model's name is its file's, which need be no text.
        write_bytes(card, text.encode(errors="backslashreplace"))
        print(f"{card}: model card")


def _export_scores(
    run: Path, out: Path, beside: Path | None, card: Path | None, kept: dict[str, object] | None
) -> None:
    """Export a run that searched for scores."""
    from fermata.policy.registry import shipped_model
    from fermata.training.slots.export import export_beside, metadata_of
    from fermata.training.slots.train import read_run

    if card is not None:
        raise InputError("scores have no card; fermata policy info shows the metadata", file=card)
    config, weights = read_run(run)
    export_beside(weights, metadata_of(config, kept), shipped_model() if beside is None else beside, out)
    print(f"{out}: {'default' if beside is None else beside}, with scores of its own for tasks of several executors")


def _method(run: Path) -> str | None:
    """Return how a folder's policy was trained; None: by the teacher, or there is no run."""
    note = run / "config.json"
    content = _read_json(note) if note.exists() else None
    # What is no configuration at all is told by whoever reads it.
    return str(content["method"]) if isinstance(content, dict) and "method" in content else None


def _read_scores(path: Path) -> dict[str, object]:
    from pydantic import BaseModel, Field, ValidationError

    from fermata.training.evaluate import Score

    class Scores(BaseModel):
        seeds: list[int] = Field(min_length=1)
        scenarios: dict[str, Score] = Field(min_length=1)

    scores = _read_json(path)
    try:
        Scores.model_validate(scores)
    except ValidationError as error:
        raise InputError("expected the output of fermata evaluate --json", file=path) from error
    if "policy" in scores and not str(policy := scores["policy"]).endswith(".onnx"):
        raise InputError(f"these are the scores of {policy!r}, not of a file that the run was exported to", file=path)
    if scores.get("interrupted"):
        raise InputError("was interrupted, so not all of its seeds were played; evaluate again", file=path)
    return {name: scores[name] for name in scores if name != "policy"}  # that is the draft that was evaluated


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg}", file=path, line=error.lineno) from error
    except UnicodeDecodeError as error:
        raise InputError("not JSON: expected UTF-8 text", file=path) from error
