"""The edges between the stages of a state, and the policies that need them.

A `ClusterState` does not hold the edges of the jobs' DAGs, so they come beside it, over the same indices.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy.decide import BoardPolicy, Policy

Positions = NDArray[np.int64]


class Dag(NamedTuple):
    """The edges between the stages of a state: children in compressed form, indices as in the state."""

    child_ptr: Positions  # [stages + 1]
    child: NDArray[np.int32]  # [edges]

    @classmethod
    def of_parents(cls, parent_ptr: Positions, parent: NDArray[np.int32]) -> Dag:
        """Turn the parents of each stage, as a trace has them, into its children.

        >>> Dag.of_parents(np.array([0, 0, 1, 2]), np.array([0, 0], np.int32))
        Dag(child_ptr=array([0, 2, 2, 2]), child=array([1, 2], dtype=int32))
        """
        stages = len(parent_ptr) - 1
        child_ptr = np.zeros(stages + 1, np.int64)
        child_ptr[1:] = np.cumsum(np.bincount(parent, minlength=stages))
        owner = np.repeat(np.arange(stages, dtype=np.int32), np.diff(parent_ptr))
        return cls(child_ptr, owner[np.argsort(parent, kind="stable")])

    @classmethod
    def of_edges(cls, stages: int, edges: Sequence[tuple[int, int]]) -> Dag:
        """Turn (parent, child) pairs into the children of each of so many stages.

        >>> Dag.of_edges(3, [(0, 2), (0, 1)])
        Dag(child_ptr=array([0, 2, 2, 2]), child=array([2, 1], dtype=int32))
        """
        parent, child = np.array(edges, np.int32).reshape(-1, 2).T
        child_ptr = np.zeros(stages + 1, np.int64)
        child_ptr[1:] = np.cumsum(np.bincount(parent, minlength=stages))
        return cls(child_ptr, child[np.argsort(parent, kind="stable")])

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The same as (parent, child) pairs."""
        parent = np.repeat(np.arange(len(self.child_ptr) - 1), np.diff(self.child_ptr))
        return tuple(zip(parent.tolist(), self.child.tolist(), strict=True))

    @classmethod
    def stacked(cls, dags: Sequence[Dag]) -> tuple[Dag, list[int]]:
        """Return several as one, and where the stages of each begin in it.

        >>> Dag.stacked([Dag(np.array([0, 1, 1]), np.array([1], np.int32))] * 2)[0].child.tolist()
        [1, 3]
        """
        bases = np.cumsum([0, *(len(dag.child_ptr) - 1 for dag in dags)]).tolist()
        edges = np.cumsum([0, *(len(dag.child) for dag in dags)])
        ptr = [dag.child_ptr[:-1] + first for dag, first in zip(dags, edges[:-1], strict=True)]
        child = [dag.child + np.int32(base) for dag, base in zip(dags, bases[:-1], strict=True)]
        return cls(np.concatenate([*ptr, edges[-1:]]), np.concatenate(child)), bases[:-1]


class GraphReader(BoardPolicy):
    """A policy that needs the edges between the stages of the states that it is asked about."""

    @abstractmethod
    def knowing(self, dag: Dag) -> Policy:
        """Return the same policy for states whose stages have these edges."""


def knowing(policy: Policy, dag: Callable[[], Dag]) -> Policy:
    """Return a policy that knows the edges between stages, if it is one that reads them."""
    if isinstance(policy, GraphReader):
        return policy.knowing(dag())
    return policy
