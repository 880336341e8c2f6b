"""The `fermata` program: one lazily loaded command a verb, and the one place where errors become exit codes.

A verb's module is imported only when it is called, so that `fermata simulate` never pays for torch or kopf.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fermata.cli.interrupts import ended_in_a_line, told
from fermata.policy.errors import DISK_FULL, FermataError
from fermata.policy.wording import printable

# verb -> module that holds a typer application called `app`
VERBS: dict[str, str] = {
    "ablate": "fermata.cli.ablate",
    "compare": "fermata.cli.compare",
    "demo": "fermata.cli.demo",
    "evaluate": "fermata.cli.evaluate",
    "explain": "fermata.cli.explain",
    "export-onnx": "fermata.cli.export_onnx",
    "hpc": "fermata.cli.hpc",
    "local": "fermata.cli.local",
    "operator": "fermata.cli.operator",
    "policy": "fermata.cli.policy",
    "release": "fermata.cli.release",
    "release-all": "fermata.cli.release_all",
    "report": "fermata.cli.report",
    "simulate": "fermata.cli.simulate",
    "trace": "fermata.cli.trace",
    "train": "fermata.cli.train",
    "validate": "fermata.cli.validate",
}

# Help as text: as markup, [/START] ends what nothing began; in the columns of its tables long options are cut off.
_PLAIN = None


class _LazyGroup(TyperGroup):
    """A group that imports a verb's module when the verb is first needed; each module keeps its own imports late."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        names: dict[str, Any] = dict.fromkeys(VERBS)
        self.commands = names  # one of them is suggested for a verb that is misspelt

    # typer carries a private copy of click, so its command classes have no public name to annotate with.
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(VERBS[cmd_name])
        module.app.rich_markup_mode = _PLAIN
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def make_context(self, *args: Any, **options: Any) -> Any:
        with told():  # it reads the options, and imports what for
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with told():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_LazyGroup,
    name="fermata",
    help="Fermata: an idle-aware scheduler for DAG workflows on Kubernetes.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=_PLAIN,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"fermata {version('fermata')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """An idle-aware scheduler for DAG workflows on Kubernetes."""


def run() -> None:
    """Run the command line; a bad input, or a file that cannot be used, exits 2 with one line, Ctrl-C exits 130."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as on standard error: no ± is worth the figures beside it
    if os.path.expanduser("~") == "~":
        os.environ["HOME"] = "/"  # a user without an entry: as Kubernetes gives one; typer asks for it, and would fail
    try:
        with ended_in_a_line("fermata"):  # also before a command begins, and after it has ended
            try:
                app()
            finally:
                _flush()
    except FermataError as error:
        print(f"fermata: {printable(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except MemoryError as error:
        print(f"fermata: out of memory{f': {error}' if str(error) else ''}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        # A file or folder that somebody named, and that cannot be read or written; what names none is not theirs. But
        # whoever writes a file says which when the disk is full, so that was standard output.
        name = error.filename or ("<stdout>" if error.errno in DISK_FULL else None)
        if name is None:
            raise
        print(f"fermata: {name}: {error.strerror}", file=sys.stderr)
        sys.exit(2)


def _flush() -> None:
    """Write the rest of standard output while there is somebody who can say that it cannot be written."""
    try:
        print(end="", flush=True)
    except OSError as error:
        # Python tries again when it ends, and would complain in its own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            sys.exit(1)  # nobody reads any more: what typer makes of it, too
        raise
