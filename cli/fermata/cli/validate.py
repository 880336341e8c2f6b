"""`fermata validate`: check manifests before they are applied, with the judgement of operator and API server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fermata.cli.options import path

app = typer.Typer(add_completion=False)


@app.command()
def validate(
    files: Annotated[
        list[Path],
        typer.Argument(parser=path, help="Manifests: YAML of one or more documents, or JSON; - for standard input."),
    ],
) -> None:
    """Check Workflows and ExecutorPools before they are applied.

    Other objects in a file are left alone. Each problem is a line.
    """
    from fermata.cli.admission import problems
    from fermata.operator.manifests import STANDARD_INPUT, check, read
    from fermata.operator.names import API_VERSION
    from fermata.policy.errors import InputError
    from fermata.policy.wording import counted

    errors: list[InputError] = []
    checked = 0
    named = [STANDARD_INPUT if str(file) == "-" else file for file in files]
    for file in named:
        found: list[InputError] = []
        try:
            for document in (each for each in read(file) if each.ours):
                checked += 1
                found += check(document, file, problems)
        except InputError as error:  # the other files are worth a look all the same
            found.append(error)
        errors += sorted(found, key=lambda each: each.line or 0)
    if not errors and not checked:
        raise InputError(f"no Workflow or ExecutorPool of {API_VERSION} in it", file=named[0], line=1)
    for each in errors:
        print(f"fermata: {each}", file=sys.stderr)
    if errors:
        raise typer.Exit(InputError.exit_code)
    print(f"{counted(checked, 'object')} valid")
