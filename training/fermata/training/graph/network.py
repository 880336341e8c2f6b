"""The graph network in torch: messages from children to parents, job and global summaries, and the heads.

Decima's three levels. A stage's embedding is that of its own features plus what its children tell; a job's is a
summary of its stages, the pool's a summary of its jobs. Scores of stages, caps, delays and of waiting are read off
these. States of different sizes stand under each other in flat arrays with segment indices: no padding.

Source: H. Mao et al., Learning Scheduling Algorithms for Data Processing Clusters, SIGCOMM 2019, section 5.1; their
limits on a job's parallelism are one function of the limit, as is `option` here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fermata.policy.graph_actions import IMPOSSIBLE, WAIT_SPACE
from fermata.policy.graph_features import (
    JOB_FEATURES,
    OPTION_FEATURES,
    OPTIONS,
    PRIOR_COLUMN,
    SMALLER_COLUMN,
    STAGE_FEATURES,
    STATE_FEATURES,
)
from fermata.policy.graph_state import GraphState
from fermata.training.graph.config import NetworkConfig

BOUND = 5.0  # inputs are bounded to so many standard deviations


class Answer(NamedTuple):
    """Scores of all choices; what is not allowed is at `IMPOSSIBLE`."""

    stage: Tensor  # [c]
    option: Tensor  # [c, OPTIONS]
    delay: Tensor  # [c, delays]
    wait: Tensor  # [s]


def tensors(graph: GraphState, device: torch.device | None = None) -> tuple[Tensor, ...]:
    """Return the arrays of some states as the arguments of a network on a device, by default the processor."""
    return tuple(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in graph)


# An exported file takes as long as it has nodes: so much less is the arithmetic of a decision. So what follows says in
# few nodes what torch has many ways to say.
def _zeros(x: Tensor, width: int) -> Tensor:
    """Return zeros, [rows of x, width]."""
    return x @ x.new_zeros(x.shape[1], width)


def _counted(layer: nn.Linear, x: Tensor) -> Tensor:
    """Return a layer's outputs and, as the last column, a 1 for each row: what is summed later counts the rows."""
    weight = nn.functional.pad(layer.weight, (0, 0, 0, 1))
    return nn.functional.linear(x, weight, nn.functional.pad(layer.bias, (0, 1), value=1.0))


def _taken(x: Tensor, at: Tensor) -> Tensor:
    """Return rows of `x`."""
    return nn.functional.embedding(at, x)


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class GraphNetwork(nn.Module):  # type: ignore[misc] # torch is not followed by mypy
    """Scores of every choice in a state; see the module.

    Inputs are normalised with the mean and spread of the first states (`normalise`), and multiplied by masks, which
    are how a configuration leaves features out. The scores of stages start from `prior` times how much less work is
    left of their job: 0 for none.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        width, hidden = config.width, config.hidden
        for name, features in (
            ("stage", STAGE_FEATURES),
            ("job", JOB_FEATURES),
            ("state", STATE_FEATURES),
            ("option", OPTION_FEATURES),
        ):
            read = torch.tensor([float(config.inputs.reads(name, feature)) for feature in features])
            self.register_buffer(f"{name}_mask", read)
            self.register_buffer(f"{name}_mean", torch.zeros(len(features)))
            self.register_buffer(f"{name}_scale", torch.ones(len(features)))
        self.embed = _mlp(len(STAGE_FEATURES), hidden, width)
        # What follows is summed over children and then put through `hear`, whose first layer is linear as well.
        self.tell = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.hear = _mlp(width, hidden, width)
        self.job = _mlp(len(STAGE_FEATURES) + width, hidden, width)
        self.job_own = nn.Linear(len(JOB_FEATURES), width)
        self.pool = _mlp(width, hidden, width)
        self.pool_own = _mlp(len(STATE_FEATURES), 2 * hidden, width)
        self.stage_head = nn.Linear(len(STAGE_FEATURES) + 3 * width, hidden)
        self.stage_score = nn.Linear(hidden, 1)
        self.option_head = nn.Linear(len(OPTION_FEATURES), hidden, bias=False)  # `option_context` has one
        self.option_context = nn.Linear(len(STAGE_FEATURES) + 3 * width, hidden)
        self.option_score = nn.Linear(hidden, 1)
        self.delay_head = _mlp(len(STAGE_FEATURES) + 3 * width, hidden, config.space.delays)
        self.wait_head = _mlp(2 * width, hidden, 1)
        self.value_head = _mlp(2 * width, hidden, 1)
        # What the scores begin at, as factors of all inputs.
        for name, features, column, factor in (
            ("stage_prior", JOB_FEATURES, PRIOR_COLUMN, -config.prior),
            ("option_prior", OPTION_FEATURES, 0, config.cap_prior),
            ("wait_prior", STATE_FEATURES, SMALLER_COLUMN, config.wait_prior),
        ):
            row = torch.zeros(1, len(features))
            row[0, column] = factor
            self.register_buffer(name, row, persistent=False)
        self._begin()

    def _begin(self) -> None:
        """Let the scores begin at the prior: the last layers are small, a wait is unlikely."""
        with torch.no_grad():
            for layer in (self.stage_score, self.option_score, self.wait_head[2], self.delay_head[2]):
                layer.weight.mul_(0.1)
                layer.bias.zero_()
            self.wait_head[2].bias.fill_(self.config.first_wait)
            self.delay_head[2].bias[1:] = self.config.first_wait

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.stage_mean.device

    def lean(self, margin: float) -> None:
        """Let a wait or a hold lead by so much more before it is the likeliest choice."""
        with torch.no_grad():
            self.wait_head[2].bias -= margin
            self.delay_head[2].bias[1:] -= margin

    def normalise(self, graph: GraphState) -> None:
        """Take the mean and the spread of the inputs from some states."""
        option_x = graph.option_x[graph.option_mask]
        for name, x in (
            ("stage", graph.stage_x),
            ("job", graph.job_x),
            ("state", graph.state_x),
            ("option", option_x),
        ):
            getattr(self, f"{name}_mean").copy_(torch.from_numpy(x.mean(0)))
            getattr(self, f"{name}_scale").copy_(torch.from_numpy(np.maximum(x.std(0), 0.05)))

    def _read(self, name: str, x: Tensor) -> Tensor:
        """Return inputs normalised, bounded and masked."""
        mean, scale, mask = (getattr(self, f"{name}_{what}") for what in ("mean", "scale", "mask"))
        # The mask is in factor and offset, which an exported file has as constants; a product with a diagonal takes it
        # less time than a factor for each column.
        return torch.addmm(-mean * mask / scale, x, torch.diag(mask / scale)).clamp(-BOUND, BOUND)

    def _gathered(self, mlp: nn.Sequential, x: Tensor, segment: Tensor, into: Tensor, own: nn.Linear | None) -> Tensor:
        """Return the sums or means by segment of what a network says of the rows of `x`, for each row of `into`.

        `own`, if any, is a layer whose outputs for `into` are added. The last layer of `mlp` is linear, so it is asked
        once a segment.
        """
        last = mlp[-1]
        hidden = torch.relu(_counted(mlp[0], x))
        total = _zeros(into, hidden.shape[1]).index_add(0, segment, hidden)
        if self.config.aggregate == "sum":
            weight, bias = torch.cat([last.weight, last.bias.unsqueeze(1)], dim=1), None
        else:
            told, count = total.split([last.in_features, 1], dim=1)
            total, weight, bias = told / count, last.weight, last.bias
        if own is None:
            return nn.functional.linear(total, weight, bias)
        bias = own.bias if bias is None else own.bias + bias
        return torch.addmm(nn.functional.linear(into, own.weight, bias), total, weight.T)

    def _messages(self, own: Tensor, child: Tensor, parent: Tensor) -> Tensor:
        """Return the stages' embeddings after `rounds` rounds of messages; a stage without children hears zeros.

        All stages at once, so that after r rounds everything of height up to r is final: the same as Decima's level
        by level, for DAGs up to that depth.
        """
        tell, first, last = self.tell[0], self.hear[0], self.hear[2]
        if child.shape[0] == 0 and not torch.compiler.is_exporting():  # an exported file always runs the rounds
            return own + self.hear(own.new_zeros(1, own.shape[1]))
        zeros = _zeros(own, own.shape[1])
        children = None
        if self.config.aggregate == "mean":
            one = own.new_ones(1, 1).expand(parent.shape[0], own.shape[1])
            children = zeros.index_add(0, parent, one).clamp(min=1.0)
        # What a stage tells is a layer over its embedding, which ends in a layer over what it hears: two layers without
        # a bend between them are one, and the embedding itself is asked for only at the end.
        before = nn.functional.linear(own, tell.weight, tell.bias + tell.weight @ last.bias)
        retold = (tell.weight @ last.weight).T
        told = self.tell(own)
        for more in reversed(range(self.config.rounds)):
            heard = zeros.index_add(0, parent, _taken(told, child))
            if children is not None:
                heard = heard / children
            hidden = torch.relu(first(heard))
            if more:
                told = torch.relu(torch.addmm(before, hidden, retold))
        return own + last(hidden)

    def _levels(
        self, x: tuple[Tensor, Tensor, Tensor], stage_job: Tensor, child: Tensor, parent: Tensor, job_state: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the embeddings of stages [n, width], jobs [j, width], and of states [s, width], by jobs and own."""
        stage_x, job_x, state_x = x
        own = self.embed(stage_x)
        stages = own if self.config.rounds == 0 else self._messages(own, child, parent)
        jobs = torch.relu(self._gathered(self.job, torch.cat([stage_x, stages], dim=1), stage_job, job_x, self.job_own))
        pool = self._gathered(self.pool, jobs, job_state, state_x, None)
        state_own = self.pool_own(state_x)
        return stages, jobs, pool, state_own

    def forward(
        self,
        stage_x: Tensor,
        stage_job: Tensor,
        edge_child: Tensor,
        edge_parent: Tensor,
        job_x: Tensor,
        job_state: Tensor,
        state_x: Tensor,
        choice_stage: Tensor,
        option_x: Tensor,
        option_mask: Tensor,
        can_hold: Tensor,
        can_wait: Tensor,
    ) -> Answer:
        """Return the scores of all choices; arguments as the fields of `GraphState`."""
        answer, _ = self.evaluate(
            stage_x, stage_job, edge_child, edge_parent, job_x, job_state, state_x,
            choice_stage, option_x, option_mask, can_hold, can_wait,
        )  # fmt: skip
        return answer

    def evaluate(
        self,
        stage_x: Tensor,
        stage_job: Tensor,
        edge_child: Tensor,
        edge_parent: Tensor,
        job_x: Tensor,
        job_state: Tensor,
        state_x: Tensor,
        choice_stage: Tensor,
        option_x: Tensor,
        option_mask: Tensor,
        can_hold: Tensor,
        can_wait: Tensor,
    ) -> tuple[Answer, Tensor]:
        """Return the scores of all choices and the value of each state [s]; arguments as the fields of `GraphState`."""
        x = self._read("stage", stage_x), self._read("job", job_x), self._read("state", state_x)
        stages, jobs, pool, state_own = self._levels(x, stage_job, edge_child, edge_parent, job_state)
        job = stage_job.gather(0, choice_stage)
        states, own = torch.cat([pool, state_own], dim=1), torch.cat([x[0], stages], dim=1)
        about = (own, choice_stage), (jobs, job), (pool + state_own, job_state.gather(0, job))
        context = torch.cat([_taken(each, row) for each, row in about], dim=1)
        # The same features as the heads read, but never normalised: an order that holds on any scale.
        prior = _taken(nn.functional.linear(job_x, self.stage_prior, self.stage_score.bias), job)
        stage = torch.addmm(prior, torch.relu(self.stage_head(context)), self.stage_score.weight.T).squeeze(1)
        option = self._options(context, option_x)
        return Answer(
            stage=stage,
            option=torch.where(option_mask, option, IMPOSSIBLE),
            delay=self._delays(context, can_hold) if self.config.space.delays > 1 else stage.detach().unsqueeze(1),
            wait=self._waits(states, state_x, can_wait),
        ), self.value_head(states).squeeze(1)

    def _options(self, context: Tensor, option_x: Tensor) -> Tensor:
        """Return [c, OPTIONS]: of one option after the other, because a product of matrices takes least time."""
        own = option_x.flatten(0, 1)
        about = self.option_context(context).unsqueeze(1).expand(-1, OPTIONS, -1).flatten(0, 1)
        hidden = torch.relu(torch.addmm(about, self._read("option", own), self.option_head.weight.T))
        prior = nn.functional.linear(own, self.option_prior, self.option_score.bias)
        return torch.addmm(prior, hidden, self.option_score.weight.T).reshape(-1, OPTIONS)

    def _delays(self, context: Tensor, can_hold: Tensor) -> Tensor:
        """Return [c, delays]: only a stage that was never held may be held."""
        score = self.delay_head(context)
        later = torch.where(can_hold.unsqueeze(1), score[:, 1:], IMPOSSIBLE)
        return torch.cat([score[:, :1], later], dim=1)

    def _waits(self, states: Tensor, state_x: Tensor, can_wait: Tensor) -> Tensor:
        """Return [s]: an idle pool never waits, and only the wait space waits at all.

        A wait begins ahead where most arrivals are far smaller than the head. Without that the first thing that is
        learned is never to wait, for nearly everywhere it is wrong.
        """
        prior = nn.functional.linear(state_x, self.wait_prior, self.wait_head[2].bias - self.config.wait_prior)
        score = torch.addmm(prior, self.wait_head[:2](states), self.wait_head[2].weight.T).squeeze(1)
        if self.config.space.kind != WAIT_SPACE:
            can_wait = torch.zeros_like(can_wait)
        return torch.where(can_wait, score, IMPOSSIBLE)
