"""A graph network through ONNX Runtime: a policy that reads every unfinished stage and the edges between them.

The file takes the arrays of `fermata.policy.graph_state.GraphState` by name, of any size, and gives the scores of
`fermata.policy.graph_actions.Scores`; its metadata names schema and action space. A `ClusterState` holds no edges, so
whoever asks about jobs of several stages first says what their DAGs are (`knowing`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fermata.policy.action import Action
from fermata.policy.board import Board
from fermata.policy.dag import Dag, GraphReader, Positions
from fermata.policy.errors import ModelError
from fermata.policy.graph_actions import SPACES, WAIT_SPACE, BatchScores, Scores, Space, action_of, best
from fermata.policy.graph_features import JOB_FEATURES, OPTION_FEATURES, OPTIONS, SCHEMA, STAGE_FEATURES, STATE_FEATURES
from fermata.policy.graph_state import GraphState, graph_state
from fermata.policy.onnx_file import OnnxFile, Session, numbers_from, open_onnx
from fermata.policy.rows import column

_MOST_STEPS = 1000
_OUTPUTS = list(Scores._fields)
_ONE_STATE = np.empty(0, np.int64)  # where its choices begin is not asked


@dataclass(frozen=True)
class GraphPolicy(GraphReader):
    """A loaded and dry-run graph network; build it with `load`."""

    name: str
    digest: str  # sha256 of the file, hex
    space: Space
    metadata: Mapping[str, Any]
    session: Session
    dag: Dag | None = None

    @classmethod
    def load(cls, path: str | Path, sha256: str | None = None) -> GraphPolicy:
        """Read a model, check its digest, schema, inputs and outputs, and run it once.

        Raises:
            ModelError: the file is missing, too large, not the one that was asked for, not a model for this
                version, or fails its dry run.
        """
        return cls.of_file(open_onnx(path, sha256))

    @classmethod
    def of_file(cls, file: OnnxFile) -> GraphPolicy:
        """Return the policy of an open file; raises what `load` does."""
        metadata = file.metadata([SCHEMA])
        if set(file.inputs) != set(GraphState._fields) or not file.outputs >= set(Scores._fields):
            raise ModelError(
                f"{file.path}: expected the inputs {', '.join(GraphState._fields)} and the outputs "
                f"{', '.join(Scores._fields)}, got {', '.join(sorted(file.inputs))} and "
                f"{', '.join(sorted(file.outputs))}"
            )
        policy = cls(file.path.stem, file.digest, _space(file.path, metadata), metadata, file.session)
        with file.session.trial(file.path):
            policy.dry_run()
        return policy

    def dry_run(self) -> None:
        """Ask about a pool with two stages of one job, and about one with a single stage.

        Raises:
            ModelError: it fails, or answers with something else.
        """
        for stages, edges in ((2, 1), (1, 0)):
            graph = GraphState(
                stage_x=np.zeros((stages, len(STAGE_FEATURES)), np.float32),
                stage_job=np.zeros(stages, np.int64),
                edge_child=np.ones(edges, np.int64),
                edge_parent=np.zeros(edges, np.int64),
                job_x=np.zeros((1, len(JOB_FEATURES)), np.float32),
                job_state=np.zeros(1, np.int64),
                state_x=np.zeros((1, len(STATE_FEATURES)), np.float32),
                choice_stage=np.zeros(1, np.int64),
                option_x=np.zeros((1, OPTIONS, len(OPTION_FEATURES)), np.float32),
                option_mask=np.ones((1, OPTIONS), np.bool_),
                can_hold=np.ones(1, np.bool_),
                can_wait=np.ones(1, np.bool_),
            )
            self.scores(graph)

    def answers(self, graph: GraphState, first: Positions) -> BatchScores:
        """Return the scores of the choices of some states, whose choices begin at `first` [s + 1].

        Raises:
            ModelError: the runtime fails, an output has another shape than it must, or a score is not a number.
        """
        stage, option, delay, wait = numbers_from(self.session, _OUTPUTS, graph._asdict(), self.name)
        choices = len(graph.choice_stage)
        expected = ((choices,), (choices, OPTIONS), (choices, self.space.delays), (len(graph.can_wait),))
        if tuple(each.shape for each in (stage, option, delay, wait)) != expected:
            raise ModelError(f"policy {self.name!r}: expected scores of shapes {expected}")
        if not all(math.isfinite(each.sum()) for each in (stage, option, delay, wait)):  # a sum is, if each number is
            raise ModelError(f"policy {self.name!r} answered with a number that is not finite")
        # Whatever a file answers, and be it below IMPOSSIBLE, what is not allowed is not the best.
        option = np.where(graph.option_mask, option, -math.inf)
        if self.space.delays > 1:
            delay[:, 1:] = np.where(graph.can_hold[:, np.newaxis], delay[:, 1:], -math.inf)
        wait = np.where(graph.can_wait & (self.space.kind == WAIT_SPACE), wait, -math.inf)
        return BatchScores(stage, option, delay, wait, first)

    def scores(self, graph: GraphState) -> Scores:
        """Return the scores of the choices of one state; raises what `answers` does."""
        stage, option, delay, wait, _ = self.answers(graph, _ONE_STATE)
        return Scores(stage, option, delay, float(wait[0]))

    def knowing(self, dag: Dag) -> GraphPolicy:
        """Return the same policy for states whose stages have these edges."""
        return replace(self, dag=dag)

    def act(self, board: Board) -> Action:
        """Return the action with the highest scores.

        Raises:
            ModelError: the model fails or answers NaN, or a job has several stages and its DAG is not known.
        """
        graph, menu = graph_state(board, self.dag_of(board))
        return action_of(menu, best(self.scores(graph)), self.space)

    def dag_of(self, board: Board) -> Dag:
        """Return the edges between the stages of a board.

        Raises:
            ModelError: a job has several stages and its DAG is not known.
        """
        stages = len(board.stages)
        if self.dag is not None:
            if len(self.dag.child_ptr) <= stages:
                raise ModelError(f"policy {self.name!r} knows {len(self.dag.child_ptr) - 1} of {stages} stages")
            return self.dag
        if np.bincount(column(board.stages, "job"), minlength=1).max() > 1:
            raise ModelError(f"policy {self.name!r} reads the edges between stages, and this state comes without them")
        return Dag(np.zeros(stages + 1, np.int64), np.empty(0, np.int32))


def _space(path: Path, metadata: Mapping[str, Any]) -> Space:
    raw = metadata.get("action_space")
    told = raw if isinstance(raw, dict) else {}
    kind, steps, wake_up = told.get("kind"), told.get("steps", 1), told.get("wake_up", False)
    if kind not in SPACES or not isinstance(steps, int) or not 1 <= steps <= _MOST_STEPS or type(wake_up) is not bool:
        raise ModelError(f"{path}: action space {raw!r} in its metadata; expected kind {', '.join(SPACES)}")
    return Space(kind, steps, wake_up)
