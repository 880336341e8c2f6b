"""From a network's answer to an action: what the compiled simulator and ONNX Runtime have in common.

The network estimates, for each of three actions, the cost relative to starting the head, in mean job completion times:
start the head, start the alternative, wait. The cheapest legal one is taken; leaving the head takes a margin. A
feature far outside of what was taught makes every action but the head dearer, so a policy out of its depth schedules
by shortest remaining work first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import inlined, jit
from fermata.policy.action import START, WAIT
from fermata.policy.features import Candidates, candidates, features
from fermata.policy.heuristics.kernel import Rule
from fermata.policy.state import ClusterState

START_HEAD, START_ALTERNATIVE, WAIT_FOR_EVENT = range(3)
ACTIONS = ("start the head", "start the alternative", "wait")

# Features are bounded to so many standard deviations; beyond, each one costs PENALTY mean JCTs.
BOUND, PENALTY = 5.0, 1.0

FloatArray = NDArray[np.float64]


class Network(NamedTuple):
    """A multilayer perceptron with two hidden layers and ReLU, its input normalised; weights are [inputs, outputs]."""

    mean: FloatArray
    scale: FloatArray
    weight1: FloatArray
    bias1: FloatArray
    weight2: FloatArray
    bias2: FloatArray
    weight3: FloatArray
    bias3: FloatArray
    margin: float  # in mean JCTs: how much cheaper an action must look before the head is not started


@inlined
def one_task_cap(state: ClusterState, stage: int) -> int:
    """Return the cap that starts one task more (of a moldable stage: on every free executor)."""
    if not math.isnan(state.stage_serial_fraction[stage]):
        return int(min(state.free, state.stage_max_cap[stage]))
    return int(state.stage_running[stage]) + 1


@jit
def pick(state: ClusterState, choice: Candidates, costs: FloatArray, margin: float) -> int:
    """Return the index of the action to take; waiting is impossible while nothing runs."""
    best, least = START_HEAD, costs[START_HEAD] - margin
    if choice.alternative >= 0 and costs[START_ALTERNATIVE] < least:
        best, least = START_ALTERNATIVE, costs[START_ALTERNATIVE]
    if state.free < len(state.executor_stage) and costs[WAIT_FOR_EVENT] < least:
        best = WAIT_FOR_EVENT
    return best


@jit
def action_of(state: ClusterState, choice: Candidates, picked: int) -> tuple[int, int, int, float]:
    """Return (kind, stage, cap, until_s) of a picked action."""
    if picked == WAIT_FOR_EVENT:
        return WAIT, -1, 0, choice.wake_s
    stage = choice.head if picked == START_HEAD else choice.alternative
    return START, stage, one_task_cap(state, stage), math.inf


@jit
def cheapest(state: ClusterState, choice: Candidates, costs: FloatArray, margin: float) -> tuple[int, int, int, float]:
    """Return (kind, stage, cap, until_s) of the action that these costs [3] make the cheapest."""
    return action_of(state, choice, pick(state, choice, costs, margin))


@jit
def _layer(inputs: FloatArray, weight: FloatArray, bias: FloatArray, out: FloatArray, relu: bool) -> None:
    for j in range(len(out)):
        out[j] = bias[j]
    for i in range(len(inputs)):
        value = inputs[i]
        if value != 0.0:
            for j in range(len(out)):
                out[j] += value * weight[i, j]
    if relu:
        for j in range(len(out)):
            out[j] = max(out[j], 0.0)


@jit
def forward(network: Network, x: FloatArray) -> FloatArray:
    """Return the costs [3] that the network gives to features [SIZE]."""
    normal = np.empty(len(x))
    beyond = 0.0
    for i in range(len(x)):
        value = (x[i] - network.mean[i]) / network.scale[i]
        normal[i] = min(max(value, -BOUND), BOUND)
        beyond += abs(value - normal[i])
    hidden1, hidden2, costs = np.empty(len(network.bias1)), np.empty(len(network.bias2)), np.empty(3)
    _layer(normal, network.weight1, network.bias1, hidden1, True)
    _layer(hidden1, network.weight2, network.bias2, hidden2, True)
    _layer(hidden2, network.weight3, network.bias3, costs, False)
    costs[1:] += PENALTY * beyond
    return costs


@jit
def choose_learned(state: ClusterState, order: Rule, network: Network) -> tuple[int, int, int, float]:
    """Return (kind, stage, cap, until_s); (WAIT, -1, 0, inf) if nothing is startable."""
    choice = candidates(state, order)
    if choice.head < 0:
        return WAIT, -1, 0, math.inf
    x = np.empty(len(network.mean))
    features(state, choice, x)
    return action_of(state, choice, pick(state, choice, forward(network, x), network.margin))
