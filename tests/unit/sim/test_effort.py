"""Small episodes run as plain Python, where nobody waits for a compiler; large ones are compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.episodes import stage, trace_of

from fermata.sim.effort import WORTH_COMPILING_S, interpret_if_small, interpreted_s
from fermata.sim.scenarios import scenario
from fermata.sim.trace_io import write_trace

EXPRESS = scenario("express_k2").with_(jobs=1000).generate(1)
# Runs the command line in its own process and tells whether Numba was loaded for it.
LOADED = """
import sys
from fermata.cli.main import run
try:
    run()
finally:
    print("numba" in sys.modules, file=sys.stderr)
"""


def loads_numba(*arguments: str | Path, **variables: str) -> bool:
    environment = {key: value for key, value in os.environ.items() if key != "FERMATA_NO_JIT"} | variables
    command = [sys.executable, "-c", LOADED, "simulate", *map(str, arguments), "--policy", "fifo", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=True)
    return done.stderr.strip() == "True"


def test_a_small_episode_needs_no_compiler(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    write_trace(EXPRESS, tmp_path / "trace.jsonl")
    trace = ("--trace", tmp_path / "trace.jsonl", "--executors", 2)
    assert not loads_numba(*trace)
    assert loads_numba(*trace, FERMATA_NO_JIT="0")
    assert not loads_numba("--scenario", "k8s_cron", "--seeds", "1")
    assert loads_numba("--scenario", "express_k2", "--seeds", "1-2")


def test_where_the_disk_is_full_code_is_compiled_and_not_kept(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    (tmp_path / "adding.py").write_text(
        "from fermata.policy._jit import jit\n\n\n@jit\ndef add(a, b):\n    return a + b\n\n\nprint(add(1, 2))\n"
    )
    full = tmp_path / "full"
    full.mkdir()
    script = f"mount -t tmpfs -o size=64k none {full} && yes >{full}/file; {sys.executable} {tmp_path}/adding.py"
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    try:
        subprocess.run([*apart, f"mount -t tmpfs none {full}"], check=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(full), "FERMATA_NO_JIT": "0"}
    done = subprocess.run([*apart, script], env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_more_of_anything_is_more_effort() -> None:
    alone = interpreted_s(EXPRESS, 2)
    assert 0.0 < alone < WORTH_COMPILING_S
    assert interpreted_s(scenario("express_k2").with_(jobs=100_000).generate(1), 2) > WORTH_COMPILING_S
    # The same jobs, all at once: each start looks at all that wait.
    burst = replace(EXPRESS, job_arrival_s=np.zeros(EXPRESS.jobs))
    assert interpreted_s(burst, 2) > 10.0 * alone
    # With executors for all of them none waits for long.
    assert interpreted_s(EXPRESS, 100) < alone


@pytest.mark.parametrize("roots", [True, False])
def test_each_start_looks_at_all_stages_that_are_ready(roots: bool) -> None:
    number = 3000
    parents = [[] if roots or i == 0 else ["s0"] for i in range(number)]
    wide = trace_of((0.0, [stage(f"s{i}", 1.0, *above) for i, above in enumerate(parents)]))
    chain = trace_of((0.0, [stage(f"s{i}", 1.0, *[f"s{i - 1}"] * (i > 0)) for i in range(number)]))
    assert interpreted_s(chain, 4) < 0.1 * WORTH_COMPILING_S
    assert interpreted_s(wide, 4) > WORTH_COMPILING_S


def test_a_process_that_has_compiled_goes_on_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FERMATA_NO_JIT", raising=False)
    import fermata.policy._jit  # noqa: F401

    interpret_if_small(EXPRESS, 2)
    assert "FERMATA_NO_JIT" not in os.environ
