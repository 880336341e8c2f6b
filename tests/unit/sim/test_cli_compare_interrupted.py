"""Ctrl-C in `fermata compare` once all episodes are done: hours of them are not lost while models are looked into."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.processes import fermata

from fermata.policy.registry import shipped_model
from fermata.sim import explain


def test_an_interrupt_while_models_are_looked_into_keeps_the_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, second = tmp_path / "r.html", tmp_path / "second.onnx"
    shutil.copy(shipped_model(), second)
    look_into, asked = explain.explain, []

    def interrupted(policy: Any, *arguments: Any, **options: Any) -> explain.Explanation:
        asked.append(policy)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return look_into(policy, *arguments, **options)

    monkeypatch.setattr(explain, "explain", interrupted)
    arguments = ["--scenario", "express_k2", "--policies", f"sjf,default,{second}", "--seeds", "4-5", "--no-sweeps"]
    done = fermata("compare", *arguments, "--set", "jobs=60", "--warmup", 5, "--out", out, "--json")
    assert (done.returncode, done.stderr.count("\n")) == (130, 1)
    assert "interrupted after all episodes" in done.stderr
    numbers = json.loads(done.stdout)
    assert (numbers["interrupted"], numbers["workloads"]["express_k2"]["seeds"]) == (True, [4, 5])
    page = out.read_text()
    assert "Interrupted after all episodes" in page
    assert ("What default learned" in page, f"What {second} learned" in page) == (True, False)
