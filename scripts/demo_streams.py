"""What to expect of `fermata demo`: many of its streams in the simulator, where one is only an anecdote on a cluster.

    python scripts/demo_streams.py [SEEDS]     # 300 of them take about a minute

The simulator starts a task at once. Here every task takes a little longer instead: what one costs on the embedded
control plane, from the Job's creation until its executor is free again.
"""

from __future__ import annotations

import sys

import numpy as np
import yaml

from fermata.cli.demo import TYPICAL_SEED
from fermata.cli.demo.examples import example
from fermata.cli.interrupts import ended_in_a_line
from fermata.policy.registry import load
from fermata.sim.demo import Stream, express
from fermata.sim.metrics import mean_ci95
from fermata.sim.simulate import simulate
from fermata.sim.trace import Trace
from fermata.sim.trace_builder import StageSpec, TraceBuilder

EXECUTORS, WORKFLOWS, LOAD = 2, 80, 0.8
OVERHEAD_S = 0.05


def trace_of(stream: Stream) -> Trace:
    """Return the trace of a stream for one pool."""
    builder = TraceBuilder()
    for submission in stream.submissions:
        stages = []
        for stage in submission.manifest["spec"]["stages"]:
            seconds = float(stage["template"]["metadata"]["annotations"]["fermata.dev/sim-seconds"]) + OVERHEAD_S
            durations_s = [seconds] * stage.get("tasks", 1)
            estimate_s = stage.get("estimateSeconds", seconds)
            stages.append(StageSpec(stage["name"], durations_s, stage.get("dependsOn", ()), 1, estimate_s))
        builder.add_job(submission.name, submission.at_s, stages)
    return builder.finish()


def main() -> None:
    """Simulate the streams and print what they are worth."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    dag = yaml.safe_load(example("01-etl.yaml").read_text(encoding="utf-8"))
    policies = {name: load(name) for name in ("fifo", "sjf", "default")}
    jct_s: dict[str, list[float]] = {name: [] for name in policies}
    for seed in range(seeds):
        trace = trace_of(express({"pool": EXECUTORS}, WORKFLOWS, LOAD, seed, dag))
        for name, policy in policies.items():
            jct_s[name].append(float(simulate(trace, EXECUTORS, policy, sticky=True).job_jct_s.mean()))
    base, own = np.array(jct_s["sjf"]), []
    print(f"{seeds} streams of {WORKFLOWS} workflows and a DAG, load {LOAD:g}, {EXECUTORS} executors; against sjf:")
    for name in ("fifo", "default"):
        ours = np.array(jct_s[name])
        mean, ci95 = mean_ci95(ours - base)
        scale, percent = 100.0 / base.mean(), 100.0 * (ours / base - 1.0)
        low, middle, high = np.percentile(percent, [10, 50, 90])
        print(
            f"  {name:8} {mean * scale:+.1f}% +- {ci95 * scale:.1f} of the mean JCT; by stream: median {middle:+.1f}%, "
            f"a tenth below {low:+.1f}%, a tenth above {high:+.1f}%, faster on {np.mean(percent < 0):.0%}"
        )
        own += [f"{name} {each:+.1f}%" for each in percent[TYPICAL_SEED : TYPICAL_SEED + 1]]
    if own:
        print(f"the demo's own stream, seed {TYPICAL_SEED}: {', '.join(own)}")


if __name__ == "__main__":
    with ended_in_a_line("demo_streams.py"):
        main()
