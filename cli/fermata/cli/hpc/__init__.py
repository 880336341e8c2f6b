"""`fermata hpc`: rigid parallel jobs on one machine, from a log or a model."""

import typer

from fermata.cli.hpc.evaluate import evaluate
from fermata.cli.hpc.generate import generate
from fermata.cli.hpc.report import report
from fermata.cli.hpc.simulate import simulate
from fermata.cli.hpc.study import study
from fermata.cli.hpc.train import train
from fermata.cli.hpc.tune import tune
from fermata.cli.hpc.windows import windows

app = typer.Typer(
    help="Simulate and train schedulers of rigid parallel jobs.\n\n"
    "They run on one machine, and come from logs in Standard Workload Format.",
    no_args_is_help=True,
    add_completion=False,
)
for command in (simulate, evaluate, tune, train, generate, report, study, windows):
    app.command()(command)
