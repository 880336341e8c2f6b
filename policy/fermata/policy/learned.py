"""From a network's answer to an action: what the compiled simulator and ONNX Runtime have in common.

The network estimates, for each of three actions, the cost relative to starting the head, in mean job completion times:
start the head, start the alternative, wait. The cheapest legal one is taken; leaving the head takes a margin. A
feature far outside of what was taught makes every action but the head dearer, so a policy out of its depth schedules
by shortest remaining work first.

There are three experts, each taught alone, by what the jobs in sight are: single tasks, DAGs of single tasks (pods), or
jobs with stages of several tasks. What one has to get right is nothing that another could unlearn.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fermata.policy._jit import inlined, kernel, part
from fermata.policy.action import START, WAIT
from fermata.policy.board import Board
from fermata.policy.features import FEATURES, SEVERAL, WIDE, Candidates, FeatureRow, candidates, features, waiting_jobs
from fermata.policy.guardrails import divided_cap
from fermata.policy.heavy import too_heavy
from fermata.policy.heuristics.kernel import Rule
from fermata.policy.rows import Values
from fermata.policy.together import come_together

START_HEAD, START_ALTERNATIVE, WAIT_FOR_EVENT = range(3)
ACTIONS = ("start the head", "start the alternative", "wait")
EXPERTS = ("single tasks", "DAGs of single tasks", "stages of several tasks")  # by what the jobs in sight are

# Features are bounded to so many times an expert's scale, which is their standard deviation or more; beyond, each one
# costs PENALTY mean JCTs.
BOUND, PENALTY = 5.0, 1.0
EXECUTORS = FEATURES.index("log executors")
# Mean JCTs that leaving the head must save more in a pool that is larger than any that was taught by as much again, by
# expert. The rule for DAGs of single tasks was found on few executors and holds on many.
FARTHER = (0.35, 0.0, 0.05)
CROWD = 2.0  # jobs without an executor, for each executor, above which nothing is held
THRONG, MOST = 5.0, 10  # such jobs, for each executor and in all, above either of which the head is started
MISS_MARGIN = 2.0  # mean JCTs more that an action must save if all recent estimates were off by a factor of three
# How far costs may be off, over 1 plus the cost, for a pick to be sure: far more than single precision makes.
DOUBT = 1e-4
IDLE_MARGIN = 0.1  # mean JCTs that a wait must save, beyond the margin, for a pool in which nothing runs

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Network(NamedTuple):
    """Experts: multilayer perceptrons with two hidden layers and ReLU, their input normalised.

    Arrays begin with the dimension of the experts, and the smaller ones are filled up. Weights are [experts, inputs
    times outputs], packed: those of an input to each output one after another, and of networks side by side only those
    within one. Its scores decide where tasks take several executors. The last four are scratch memory: kernels allocate
    nothing.
    """

    mean: FloatArray
    scale: FloatArray
    weight1: FloatArray
    bias1: FloatArray
    weight2: FloatArray
    bias2: FloatArray
    weight3: FloatArray
    bias3: FloatArray
    units: IntArray  # [experts, 2] of each hidden layer
    members: IntArray  # [experts] networks side by side of which an expert is the mean
    margin: float  # in mean JCTs: how much cheaper an action must look before the head is not started
    reach: float  # log executors beyond which leaving the head must save more; see `reach_of`
    slot_weights: Values  # of the scores; see `fermata.policy.several_slots`
    inputs: FloatArray
    hidden1: FloatArray
    hidden2: FloatArray
    costs: FloatArray

    def scored(self, board: Board) -> Board:
        """Return the same board, on which stages are scored by this network's weights."""
        return board._replace(slot_weights=self.slot_weights)


def reach_of(taught_executors: float) -> float:
    """Return the log executors up to which a network is taken at its word that was taught on so many at most."""
    return math.log(taught_executors + 0.5)  # in between, as features are in single precision


@inlined
def one_task_cap(board: Board, stage: int) -> int:
    """Return the cap that starts one task more; of a moldable stage its share of the pool."""
    if not math.isnan(board.stages[stage].serial_fraction):
        return divided_cap(board, stage)
    return int(board.stages[stage].running) + 1


@kernel
def pick(board: Board, choice: Candidates, costs: FloatArray, margin: float, may_wait: bool) -> int:
    """Return the index of the action that looks cheapest; to leave a whole pool idle takes more than the margin.

    On a lone executor the alternative is no choice: with the shorter job first both are done as soon, and that one
    sooner.
    """
    best, least = START_HEAD, costs[START_HEAD] - margin - MISS_MARGIN * board.pool[0].estimate_misses
    if choice.alternative >= 0 and len(board.executors) > 1 and costs[START_ALTERNATIVE] < least:
        best, least = START_ALTERNATIVE, costs[START_ALTERNATIVE]
    if board.pool[0].free == len(board.executors):
        least -= IDLE_MARGIN
        may_wait = may_wait and not math.isinf(choice.wake_s)
    if may_wait and costs[WAIT_FOR_EVENT] < least:
        best = WAIT_FOR_EVENT
    return best


@kernel
def action_of(board: Board, choice: Candidates, picked: int) -> tuple[int, int, int, float]:
    """Return (kind, stage, cap, until_s) of a picked action."""
    if picked == WAIT_FOR_EVENT:
        return WAIT, -1, 0, choice.wake_s
    stage = choice.head if picked == START_HEAD else choice.alternative
    return START, stage, one_task_cap(board, stage), math.inf


@part
def in_throng(board: Board) -> bool:
    """Tell whether so many jobs wait that the head is started whatever a network says; looks at no more than it must.

    Whichever job is taken, the next ones pay for its whole length, and an error that costs little with two jobs
    waiting is made again with each of a hundred.
    """
    room = min(THRONG * len(board.executors), MOST)
    for i in range(board.pool[0].active):
        room -= 1.0 if board.jobs[board.active[i]].running == 0 else 0.0
        if room < 0.0:
            return True
    return False


@kernel
def pick_in_use(board: Board, choice: Candidates, costs: FloatArray, margin: float) -> int:
    """Return the index of the action that these costs [3] make the cheapest; in a throng, of the head's start.

    Unlike `choose_learned`, which the teacher follows into whatever it leads to, this never waits in a crowd: holds
    that save time are made with few jobs waiting, and a network that is wrong about one rare state must not be able to
    keep a pool in it. Where jobs like the head come together it is started, too, and where it weighs too much to wait.
    Where tasks take several executors costs say nothing: there the head is what scores best, and held if waiting scores
    more.
    """
    if choice.score < math.inf:
        runs = choice.completions.first_s < math.inf  # else there may be nothing to wait for
        return WAIT_FOR_EVENT if runs and choice.score <= 0.0 else START_HEAD
    if in_throng(board):
        return START_HEAD
    picked = pick(board, choice, costs, margin, waiting_jobs(board) <= CROWD * len(board.executors))
    job = board.stages[choice.head].job
    if picked == WAIT_FOR_EVENT and too_heavy(board, job):
        return START_HEAD
    if picked != START_HEAD and come_together(board, board.jobs[job].remaining_work_s):
        return START_HEAD
    return int(picked)


@kernel
def sure_pick(board: Board, choice: Candidates, network: Network) -> int:
    """Return what `pick_in_use` picks by `network.costs`, or -1 where costs next to these would make it pick otherwise.

    Every cost is held against others, so it is enough that the pick stays when it costs more and all others cost less.
    What the costs are is lost.
    """
    costs = network.costs
    picked = pick_in_use(board, choice, costs, network.margin)
    for i in range(len(costs)):
        doubt = DOUBT * (1.0 + abs(costs[i]))
        costs[i] += doubt if i == picked else -doubt
    return picked if pick_in_use(board, choice, costs, network.margin) == picked else -1


@kernel
def cheapest(board: Board, choice: Candidates, costs: FloatArray, margin: float) -> tuple[int, int, int, float]:
    """Return (kind, stage, cap, until_s) of what `pick_in_use` picks."""
    return action_of(board, choice, pick_in_use(board, choice, costs, margin))


@part
def _layer(
    inputs: FloatArray,
    inner: int,
    weight: FloatArray,
    bias: FloatArray,
    out: FloatArray,
    outer: int,
    relu: bool,
    block: int,
) -> None:
    """Write `outer` outputs from `inner` inputs, those of one of the networks side by side.

    Four inputs at a time, added in their order: so outputs are read and written a quarter as often.
    """
    begin, first = block * inner, block * outer
    for j in range(first, first + outer):
        out[j] = bias[j]
    sums = out[first : first + outer]
    for four in range(inner // 4):
        i = begin + 4 * four
        a, b, c, d = inputs[i], inputs[i + 1], inputs[i + 2], inputs[i + 3]
        rows = weight[i * outer : (i + 4) * outer]
        for j in range(outer):
            sums[j] = (((sums[j] + a * rows[j]) + b * rows[j + outer]) + c * rows[j + 2 * outer]) + d * rows[
                j + 3 * outer
            ]
    for i in range(begin + inner // 4 * 4, begin + inner):
        row = weight[i * outer : (i + 1) * outer]
        for j in range(outer):
            sums[j] += inputs[i] * row[j]
    if relu:
        for j in range(outer):
            sums[j] = max(sums[j], 0.0)


@inlined
def expert_for(x: FeatureRow) -> int:
    """Return the index into EXPERTS of the one to ask about features `x` [SIZE]."""
    return 2 if x[WIDE] > 0.0 else 1 if x[SEVERAL] > 0.0 else 0


def dearer(rows: NDArray[np.float32], reach: float) -> FloatArray:
    """Return what leaving the head costs more [rows, 1] with features `rows` [rows, SIZE] of pools beyond a reach."""
    experts = np.where(rows[:, WIDE] > 0.0, 2, np.where(rows[:, SEVERAL] > 0.0, 1, 0))
    farther = np.maximum(np.exp(rows[:, EXECUTORS].astype(np.float64) - reach) - 1.0, 0.0)
    return (np.array(FARTHER)[experts] * farther)[:, np.newaxis]


@kernel
def forward(network: Network, x: FloatArray) -> None:
    """Write the costs [3] of features `x` [SIZE] into `network.costs`; `x` is normalised in place."""
    expert = expert_for(x)
    mean, scale = network.mean[expert], network.scale[expert]
    beyond, farther = 0.0, max(math.exp(x[EXECUTORS] - network.reach) - 1.0, 0.0)
    for i in range(len(x)):
        value = (x[i] - mean[i]) / scale[i]
        x[i] = min(max(value, -BOUND), BOUND)
        beyond += abs(value - x[i])
    costs = network.costs
    first, second = network.units[expert]
    members = network.members[expert]
    weight2, bias2 = network.weight2[expert], network.bias2[expert]
    _layer(x, len(x), network.weight1[expert], network.bias1[expert], network.hidden1, first, True, 0)
    for k in range(members):
        _layer(network.hidden1, first // members, weight2, bias2, network.hidden2, second // members, True, k)
    _layer(network.hidden2, second, network.weight3[expert], network.bias3[expert], costs, len(costs), False, 0)
    for i in range(1, len(costs)):
        costs[i] += PENALTY * beyond + FARTHER[expert] * farther


@kernel
def choose_learned(board: Board, order: Rule, network: Network) -> tuple[int, int, int, float]:
    """Return (kind, stage, cap, until_s); (WAIT, -1, 0, inf) if nothing is startable."""
    choice = candidates(board, order)
    if choice.head < 0:
        return WAIT, -1, 0, math.inf
    features(board, choice, network.inputs)
    forward(network, network.inputs)
    return action_of(board, choice, pick(board, choice, network.costs, network.margin, True))
