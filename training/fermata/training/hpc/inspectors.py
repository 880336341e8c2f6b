"""Our own training of inspectors: imitate a rule that is worth having, then search around it with whole episodes.

Policy gradients see a hold that pays once in a hundred decisions as noise, and a random inspector of starts only hurts.
A rule with two numbers (who is long, what they leave free) is most of the gain and takes seconds to tune. The network
is first fitted to that rule, then improved by the search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from fermata.policy.errors import InputError
from fermata.sim.hpc.experiment import Sequences, draw_sequences, expect_decisions, expect_queue, run_sequence, split
from fermata.sim.hpc.inspect import SAMPLE, seed_sampling
from fermata.sim.hpc.jobs import FloatArray, JobLog
from fermata.sim.hpc.kernel import run
from fermata.sim.hpc.models import InspectorModel, load_model
from fermata.sim.hpc.policies import Policy, spelled
from fermata.sim.hpc.policies import policy as named
from fermata.sim.hpc.rules import Rules, Start
from fermata.sim.hpc.tune import best_reservation, try_reservations
from fermata.sim.hpc.world import World
from fermata.training.hpc.evolution import single
from fermata.training.hpc.network import perceptron, theta_of
from fermata.training.hpc.runs import Kept
from fermata.training.hpc.search import Episode, Generation, search
from fermata.training.hpc.search_config import InspectorSearchConfig

_FITS, _FREE, _LOG_ESTIMATE, _FREE_AFTER = 4, 3, 8, 10  # places of features
_LOG_SCALE = 12.0
_JOBS = 256  # of a sequence, if the part has as many
_TUNED_ON = 40  # sequences
_IMITATED_ON = 120


def search_inspector(
    log: JobLog,
    config: InspectorSearchConfig,
    *,
    part: str,
    on_generation: Callable[[Generation], None] | None = None,
    kept: Kept | None = None,
) -> InspectorModel:
    """Return the best inspector that was found; the same for the same arguments.

    Args:
        log: the jobs, with the estimates that the inspector will see.
        config: see `InspectorSearchConfig`.
        part: where training sequences come from, see `experiment.split`.
        on_generation: told now and then, and at once what an earlier call was told.
        kept: what keeps the state after every generation, to go on from.

    Raises:
        InputError: the part is too short or has nothing to decide, or the policy means nothing or holds by itself.
        ModelError: `config.start` is no inspector, or one that reads more features.
    """
    torch.set_num_threads(1)
    policy = named(config.policy)
    if policy.model is not None:
        raise InputError(f"{config.policy} holds jobs by itself; expected a policy that an inspector can be put beside")
    expect_queue(log, policy, config.jobs, part)
    empty = InspectorModel(
        config.scope,
        config.features,
        128.0,
        np.zeros(0),
        config.policy,
        log.name,
        "bsld",
        config.seed,
        config.max_rejections,
    )
    if config.start:
        theta = load_model(config.start).widened(config.features).theta
    else:
        theta = _imitate(log, policy, empty, config, part)
    beside = empty.inspector(log)

    def inspect(episode: Episode, world: World, theta: FloatArray) -> None:
        inspector = beside._replace(theta=theta)
        while not run(episode.jobs, episode.config, world, inspector):
            pass

    found = search(log, policy, theta, inspect, config, part=part, on_generation=on_generation, kept=kept)
    return replace(empty, theta=found)


def _imitate(
    log: JobLog, policy: Policy, model: InspectorModel, config: InspectorSearchConfig, part: str
) -> FloatArray:
    """Return weights that decide as the tuned reservation does; an inspector of commitments rejects what is blocked."""
    torch.manual_seed(config.seed)
    network = perceptron(config.features, 2)
    first, end = split(log, part)
    sequences = draw_sequences(log, _IMITATED_ON, min(_JOBS, end - first), config.seed + 1, part=part)
    seen = _states(log, policy, sequences, replace(model, theta=theta_of(network)))
    expect_decisions(len(seen), log, part)
    rules = policy.rules if config.scope == "starts" else Rules(Start.STRICT)
    base = spelled(policy.order, rules.start, rules.backfill)
    shorter = replace(sequences, starts=sequences.starts[:_TUNED_ON])
    # Of starts the rule may wait a little longer than its own policy does: the price on waiting is the search's.
    yardstick = base if config.scope == "starts" else config.yardstick
    tried = try_reservations(log, shorter, yardstick=yardstick, bases=(base,))
    tuned = best_reservation(tried, config.max_wait_ratio).policy.rules
    estimate = np.expm1(seen[:, _LOG_ESTIMATE] * _LOG_SCALE)
    holds = (estimate > tuned.reserve_over_s) & (seen[:, _FREE_AFTER] < tuned.reserve_share) & (seen[:, _FREE] < 1.0)
    wanted = torch.from_numpy((holds | (seen[:, _FITS] == 0.0)).astype(np.int64))
    inputs = torch.from_numpy(seen).float()
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(1500):
        rows = torch.randint(len(inputs), (512,))
        loss = torch.nn.functional.cross_entropy(network(inputs[rows]), wanted[rows])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        optimiser.step()
    return single(theta_of(network))


def _states(log: JobLog, policy: Policy, sequences: Sequences, model: InspectorModel) -> FloatArray:
    """Return what an inspector sees that rejects at random, `[decisions, features]`."""
    inspector = model.inspector(log, SAMPLE, record=80 * _JOBS)
    seed_sampling(model.seed)
    rows = []
    for start in sequences.starts:
        schedule = run_sequence(log, policy, start, sequences.jobs, 0, inspector)
        rows.append(inspector.seen[: min(schedule.inspections, len(inspector.acted))].copy())
    return np.concatenate(rows)
