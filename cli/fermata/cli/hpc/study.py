"""`fermata hpc study`: SchedInspector's evaluation, trained anew; what is there is not trained again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fermata.cli.hpc.options import telling
from fermata.cli.interrupts import resumable
from fermata.cli.options import check_folder, path
from fermata.cli.progress import progress_bar


@resumable()
def study(
    data: Annotated[
        Path, typer.Option(parser=path, help="Folder with lublin_256, SDSC-SP2-recon and CTC-SP2-recon (.swf.xz).")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", parser=path, help="Folder for the inspectors; it is made.")],
) -> None:
    """Train the inspectors of SchedInspector's tables.

    Those of its figures, too, one file each; run it again to go on. `fermata hpc report --study FOLDER` makes the
    tables.
    """
    from fermata.cli.extras import need

    need("training")
    check_folder(out)
    from fermata.sim.hpc.report import exact_log
    from fermata.sim.hpc.study import CASES

    wanted = [(case.log, name, settings) for case in CASES for name, settings in case.runs.items()]
    wanted.sort(key=lambda each: int(each[2]["seed"]))  # every case once, then again
    needed = dict.fromkeys(log for log, name, _ in wanted if not (out / name).is_file())
    logs = {log: exact_log(data, log) for log in needed}  # one that is not there is said now, before torch is imported
    from fermata.training.hpc.config import InspectorConfig
    from fermata.training.hpc.export import export_inspector
    from fermata.training.hpc.runs import Trained, kept_beside
    from fermata.training.hpc.train import train_inspector

    out.mkdir(parents=True, exist_ok=True)
    for number, (log, name, settings) in enumerate(wanted):
        model = out / name
        if model.is_file():
            continue
        print(f"{number + 1} of {len(wanted)}: {name}", file=sys.stderr)
        config = InspectorConfig.model_validate(settings)
        trained = Trained.of("ppo", logs[log], "train", config)
        with kept_beside(model, trained) as kept, progress_bar(name) as progress:
            tell = telling(progress, config.epochs)
            export_inspector(train_inspector(logs[log], config, part="train", on_epoch=tell, kept=kept), model)
    print(f"{len(wanted)} inspectors in {out}")
