"""`fermata validate`: check manifests before they are applied, with the judgement of operator and API server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="Manifests: YAML of one or more documents, or JSON.")],
) -> None:
    """Check Workflows and ExecutorPools; other objects in a file are left alone."""
    from fermata.cli.admission import refusals
    from fermata.operator.manifests import check, read
    from fermata.policy.errors import InputError

    errors: list[InputError] = []
    checked = 0
    for file in files:
        ours = [document for document in read(file) if document.ours]
        checked += len(ours)
        for document in ours:
            errors += check(document, file) or check(document, file, refusals)
    if errors:
        first = min(errors, key=lambda error: (files.index(Path(error.file or "")), error.line or 0))
        rest = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise InputError(first.message + rest, file=first.file, line=first.line)
    if not checked:
        raise InputError("no Workflow or ExecutorPool in it", file=files[0], line=1)
    print(f"{checked} object{'s' if checked != 1 else ''} valid")
