"""`fermata demo` as a user runs it, with a short stream: it ends well, and whatever ends it, nothing stays behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.processes import fermata, interruptible
from tests.scripts import script

from fermata.policy.registry import shipped_model

pytestmark = pytest.mark.e2e

PATIENCE_S = 120.0
MARK = "FERMATA_DEMO_TEST"


class Demo:
    """A demonstration as a child process; everything it starts inherits a mark in its environment."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder, self.mark = folder, f"{os.getpid()}-{folder.name}"
        self.report = folder / "report.html"
        command = [sys.executable, "-m", "fermata.cli", "demo", "--report", str(self.report), *arguments]
        environment = {**os.environ, MARK: self.mark, "TMPDIR": str(folder)}
        self.process = interruptible(
            command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def family(self) -> dict[int, str]:
        """Return the command lines of all living processes that carry the mark, by process id."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                environment = (entry / "environ").read_bytes()
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if entry.name.isdigit() and f"{MARK}={self.mark}".encode() in environment.split(b"\0"):
                found[int(entry.name)] = line
        return found

    def wait_for_parts(self) -> None:
        """Wait until control plane and operator run and the first workflow has been decided about."""

        def decided() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            return any(file.stat().st_size for file in self.folder.glob("fermata-demo-*/decisions.jsonl"))

        _wait_until(decided, "nothing is decided")
        assert len(self.family()) == 3, self.family()

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return exit code, standard output and standard error."""
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if sys.platform != "linux":
        pytest.skip("looks for processes in /proc")
    if not shipped_model().exists():
        pytest.skip("no model ships with this checkout")
    return tmp_path


def _wait_until(condition: Callable[[], bool], message: str) -> None:
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(message)


def test_a_stream_runs_to_its_end_and_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    demo = Demo(folder, "--workflows", "8", "--json", "--dir", str(folder / "kept"))
    code, out, err = demo.end()
    assert code == 0, err
    assert demo.family() == {}
    told = json.loads(out.splitlines()[-1])
    for pool in told["avg_jct_s"]:
        # Half of a figure is another one, however narrow the terminal is.
        assert re.search(rf"^{pool}( +[0-9.]+[0-9] s){{5}} +(base|.+%\)) *$", err, re.MULTILINE), err
    assert told["workflows"] == told["succeeded"] == 3 * 9
    assert set(told["avg_jct_s"]) == {"fifo", "sjf", "learned"}
    page = demo.report.read_text()
    assert page.count("<svg role") == 6
    assert "<td>0.5 s</td>" in page, "the class of the short ones is what they are meant to take"
    assert not re.search(r"""(src|href)=["'](https?:)?//""", page), "the page asks something of the network"
    # What the page says is what the statuses say: means, and no pod that ended before its time.
    shorts = [float(jct) for jct in re.findall(r">short-\d+</span></td><td>[0-9.]+</td><td>([0-9.]+)</td>", page)]
    assert len(shorts) == 7
    assert min(shorts) >= 0.5
    # Both print the same means, each rounded by itself: 3.145 is "3.15" from one and "3.14" from the other.
    printed = [float(mean) for mean in re.findall(r"<strong>([0-9.]+)</strong>", page)]
    for mean in told["avg_jct_s"].values():
        assert any(abs(mean - shown) < 0.006 for shown in printed), (mean, printed)
    assert (folder / "kept" / "decisions.jsonl").stat().st_size > 0


def test_what_a_killed_one_left_is_nobodys_control_plane_and_one_that_is_up_is_not_taken(folder: Path) -> None:
    kept = folder / "kept"
    (kept / "kube").mkdir(parents=True)
    left = {"pid": os.getpid(), "url": "http://127.0.0.1:9", "slots": 2, "nodes": 1}
    (kept / "kube" / "state.json").write_text(json.dumps(left))
    (kept / "kube" / "kubeconfig").write_text("")
    first = Demo(folder, "--dir", str(kept))
    _wait_until(lambda: len(first.family()) == 3 and (kept / "decisions.jsonl").is_file(), "it does not start")
    second = Demo(folder, "--dir", str(kept), "--report", str(folder / "second.html"))
    code, _, err = second.end()
    assert code == 1
    assert "a control plane is already up here" in err
    assert "Traceback" not in err
    first.process.send_signal(signal.SIGINT)
    code, _, err = first.end()
    assert code == 130, err


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 143, marks=pytest.mark.slow),
    ],
)
def test_interrupted_in_the_middle_it_takes_everything_down(folder: Path, number: signal.Signals, code: int) -> None:
    demo = Demo(folder)
    demo.wait_for_parts()
    demo.process.send_signal(number)
    ended, _, err = demo.end()
    assert ended == code, err
    assert "Traceback" not in err
    assert demo.family() == {}
    assert list(folder.glob("fermata-demo-*")) == []


def test_killed_it_takes_everything_down_too(folder: Path) -> None:
    demo = Demo(folder)
    demo.wait_for_parts()
    demo.process.kill()
    demo.end()
    _wait_until(lambda: demo.family() == {}, "processes are left")


def test_a_part_that_dies_ends_it_with_one_line_and_the_logs(folder: Path) -> None:
    demo = Demo(folder)
    demo.wait_for_parts()
    operator = next(pid for pid, line in demo.family().items() if " operator " in line)
    os.kill(operator, signal.SIGKILL)
    code, _, err = demo.end()
    assert code == 1
    assert "fermata: the operator ended with exit code -9" in err
    assert "Traceback" not in err
    kept = Path(re.search(r"state and logs: (\S+)", err)[1])  # type: ignore[index]
    assert (kept / "operator.log").is_file()
    assert demo.family() == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "no-such-policy"], "--policy 'no-such-policy': expected one of default, "),
        (["--policy", "sjf-hold:nonsense=1"], "nonsense"),
        (["--policy", "model.onnx"], "--policy 'model.onnx': expected one of "),
        (["--report", "no-such-folder/report.html"], "no-such-folder/report.html: cannot write it: no such folder"),
        (["--dir", "-"], "-: expected the name of a folder"),
    ],
)
def test_what_cannot_be_used_is_one_line_before_anything_runs(folder: Path, arguments: list[str], words: str) -> None:
    done = fermata("demo", "--dir", str(folder / "kept"), *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert words in done.stderr
    assert not (folder / "kept").exists()


def test_the_script_of_many_streams_tells_how_each_pool_does_on_the_demos_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a single stream that is its median."""
    streams = script("demo_streams")
    monkeypatch.setattr(streams, "TYPICAL_SEED", 0)
    monkeypatch.setattr(sys, "argv", ["demo_streams.py", "1"])
    streams.main()
    told = capsys.readouterr().out
    medians = re.findall(r"^  (\w+) .* median (\S+%),", told, flags=re.MULTILINE)
    assert [name for name, _ in medians] == ["fifo", "default"]
    own = ", ".join(f"{name} {median}" for name, median in medians)
    assert told.endswith(f"the demo's own stream, seed 0: {own}\n")
