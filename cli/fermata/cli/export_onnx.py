"""`fermata export-onnx`: turn a finished training run into one ONNX file."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command("export-onnx")
def export_onnx(
    run: Annotated[Path, typer.Argument(help="Folder that fermata train wrote.")],
    out: Annotated[Path, typer.Option(help="The ONNX file to write.")],
    scores: Annotated[
        Path | None, typer.Option(help="Output of fermata evaluate --json, to be kept in the file.")
    ] = None,
    card: Annotated[Path | None, typer.Option(help="Also write a model card in Markdown.")] = None,
) -> None:
    """Export a trained policy as ONNX, checked against torch."""
    from fermata.cli.extras import export, graph_export, graph_training, training
    from fermata.policy.errors import InputError

    graph = _is_graph(run)
    config, network = (graph_training() if graph else training()).read_run(run)
    exporter = graph_export() if graph else export()
    if graph and card is not None:
        raise InputError("there is no card of a graph policy; fermata policy info shows its metadata", file=card)
    metadata = exporter.metadata_of(config, None if scores is None else _read_scores(scores))
    difference = exporter.export_onnx(network, metadata, out)
    print(f"{out}: largest difference from torch {difference:.2g} (allowed {exporter.TOLERANCE:g})")
    if card is not None:
        from fermata.policy.onnx_policy import OnnxPolicy
        from fermata.training.card import model_card

        card.write_text(model_card(out.stem, OnnxPolicy.load(out).digest, metadata, config), encoding="utf-8")
        print(f"{card}: model card")


def _is_graph(run: Path) -> bool:
    """Tell whether a folder holds a run of a graph policy."""
    note = run / "config.json"
    return note.exists() and '"method"' in note.read_text(encoding="utf-8")


def _read_scores(path: Path) -> dict[str, object]:
    import json

    from fermata.policy.errors import InputError

    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(error.strerror or str(error), file=path) from error
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg}", file=path, line=error.lineno) from error
    if not isinstance(scores, dict) or not {"seeds", "scenarios"} <= scores.keys():
        raise InputError("expected the output of fermata evaluate --json", file=path)
    scores.pop("policy", None)  # the name of the draft that was evaluated
    return scores
