"""From a run of a graph policy to one ONNX file of any sizes, checked against torch before it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fermata.policy.board import board_of
from fermata.policy.dag import Dag
from fermata.policy.graph import compressed, job_shape, path_lengths
from fermata.policy.graph_features import JOB_FEATURES, OPTION_FEATURES, SCHEMA, STAGE_FEATURES, STATE_FEATURES
from fermata.policy.graph_policy import GraphPolicy
from fermata.policy.graph_state import GraphState, graph_state, join
from fermata.policy.onnx_file import KEY
from fermata.policy.state import IDLE, RECENT_ARRIVALS, ClusterState, free_executor_list
from fermata.training.files import draft_of
from fermata.training.graph.config import GraphConfig
from fermata.training.graph.network import Answer, GraphNetwork, tensors
from fermata.training.onnx_writer import TOLERANCE, difference_from_torch, onnx_of

__all__ = ["PARITY_STAGES", "TOLERANCE", "export_onnx", "metadata_of", "parity", "random_state"]

PARITY_STAGES = (1, 2, 3, 10, 50, 400, 2000)


def metadata_of(config: GraphConfig, scores: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what a model file says about itself."""
    inputs, space = config.network.inputs, config.network.space
    names = {"stage": STAGE_FEATURES, "job": JOB_FEATURES, "state": STATE_FEATURES, "option": OPTION_FEATURES}
    return {
        "schema": SCHEMA,
        "features": {level: [name for name in all_ if inputs.reads(level, name)] for level, all_ in names.items()},
        "action_space": space.space._asdict(),
        "rounds": config.network.rounds,
        "method": config.method,
        "config": config.name,
        "config_digest": config.digest,
        "seed": config.seed,
        "version": version("fermata"),
        "scores": scores or {},
    }


def random_state(stages: int, random: np.random.Generator) -> tuple[ClusterState, Dag]:
    """Return a made-up state of so many unfinished stages, about eight a job, for parity and speed; and its edges.

    Stages without an unfinished parent are ready. A third of the pool's 20 executors are busy. There are as many recent
    arrivals as a state carries, most of them of jobs that are done.
    """
    jobs = max(1, stages // 8)
    stage_job = np.sort(np.concatenate([np.arange(jobs), random.integers(0, jobs, stages - jobs)])).astype(np.int32)
    first = np.searchsorted(stage_job, np.arange(jobs))
    parents = [
        sorted({int(random.integers(first[job], stage)) for _ in range(random.integers(1, 4))})
        if stage > first[job]
        else []
        for stage, job in enumerate(stage_job.tolist())
    ]
    pointer, parent = compressed(parents)
    estimate_s, tasks = random.lognormal(2.0, 1.0, stages), random.integers(1, 20, stages).astype(np.int32)
    roots = np.diff(pointer) == 0
    path_s, _ = path_lengths(pointer, parent, estimate_s)
    work_s, longest_s, width = job_shape(np.append(first, stages), estimate_s * tasks, path_s)
    running = np.zeros(stages, np.int32)
    executor_stage = np.full(20, IDLE, np.int32)
    executor_stage[:6] = random.choice(np.flatnonzero(roots), 6)
    np.add.at(running, executor_stage[:6], 1)
    executor_job = np.where(executor_stage == IDLE, IDLE, stage_job[executor_stage]).astype(np.int32)
    arrival_s = np.sort(random.uniform(0.0, 100.0, jobs))
    state = ClusterState(
        now_s=100.0,
        free=14,
        executor_free_at_s=np.where(executor_stage == IDLE, -np.inf, 100.0 + random.exponential(20.0, 20)),
        executor_stage=executor_stage,
        executor_job=executor_job,
        job_arrival_s=arrival_s,
        job_weight=np.ones(jobs),
        job_work_s=work_s,
        job_remaining_work_s=work_s,
        job_critical_path_s=longest_s,
        job_width=np.maximum(width, 1.0),
        job_running=np.bincount(executor_job[:6], minlength=jobs).astype(np.int32),
        job_held_s=np.zeros(jobs),
        stage_job=stage_job,
        stage_pending=tasks,
        stage_running=running,
        stage_estimate_s=estimate_s,
        stage_slots=np.ones(stages, np.int32),
        stage_serial_fraction=np.full(stages, np.nan),
        stage_cap=running,
        stage_max_cap=tasks + running,
        stage_ready_s=np.where(roots, arrival_s[stage_job], np.inf),
        stage_held_s=np.zeros(stages),
        stage_hold_until_s=np.full(stages, -np.inf),
        stage_path_s=path_s,
        free_executors=free_executor_list(executor_stage),
        active_jobs=np.arange(jobs, dtype=np.int32),
        ready_stages=np.flatnonzero(roots).astype(np.int32),
        recent_arrival_s=np.sort(random.uniform(0.0, 100.0, RECENT_ARRIVALS)),
        recent_work_s=random.choice(work_s, RECENT_ARRIVALS),
        recent_weight=np.ones(RECENT_ARRIVALS),
    )
    return state, Dag.of_parents(pointer, parent)


def _examples(seed: int = 0) -> Iterator[GraphState]:
    random = np.random.default_rng(seed)
    for stages in PARITY_STAGES:
        state, dag = random_state(stages, random)
        yield graph_state(board_of(state), dag)[0]


def _content(network: GraphNetwork, text: str) -> bytes:
    """Return the file's content, every number of rows being open."""
    example = join([graph for _, graph in zip(range(4), _examples(), strict=False)])
    names = GraphState._fields
    rows = ({0: torch.export.Dim.DYNAMIC},) * len(names)
    return onnx_of(network, tensors(example), names, Answer._fields, rows, (KEY, text))


def export_onnx(network: GraphNetwork, metadata: dict[str, Any], out: Path) -> float:
    """Write the network as ONNX with its metadata and return its largest difference from torch.

    Raises:
        ParityError: ONNX Runtime's answers differ from torch's by more than TOLERANCE.
    """
    content = _content(network, json.dumps(metadata, sort_keys=True))
    with draft_of(out, content) as draft:
        return parity(network, GraphPolicy.load(draft))


def parity(network: GraphNetwork, policy: GraphPolicy) -> float:
    """Return the largest `difference_from_torch` of the scores, at 1 to 2,000 stages.

    Raises:
        ParityError: it is above TOLERANCE.
    """
    largest = 0.0
    for graph in _examples(seed=1):
        with torch.no_grad():
            expected = network(*tensors(graph))
        answers = policy.session.run(list(Answer._fields), graph._asdict())
        for answer, wanted in zip(answers, expected, strict=True):
            largest = max(largest, difference_from_torch(answer, wanted, f" at {len(graph.stage_x)} stages"))
    return largest
