"""Schedulers of rigid jobs by name: an order of the queue, start semantics and backfilling in one word.

A policy is written ORDER, ORDER+BACKFILL or ORDER+BACKFILL/START, with parameters after a colon: `sjf`,
`saf+easy/skip`, `multifactor:age=2000+easy/skip`, `saf+easy/skip+reserve:over_s=10800,share=0.4`. `queue-prompt` is a
learned policy over the whole queue that ships, the path of an .onnx file is one of your own, and `window:FILE.onnx` is
a Deep Back-Filling agent, which sees a window of the queue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from fermata.policy.errors import InputError
from fermata.sim.hpc.orders import Order, order
from fermata.sim.hpc.rules import PUBLISHED_BACKFILL, PUBLISHED_NO_BACKFILL, Backfill, Rules, Start

if TYPE_CHECKING:
    from fermata.sim.hpc.queue_models import QueueModel
    from fermata.sim.hpc.window_models import WindowModel

E = TypeVar("E", Start, Backfill)

_RESERVE = "reserve"
_PLUS = re.compile(r"\+(?![\d.])")  # one before a digit is of a parameter's number, as in 1e+06
QUEUE, WINDOW = "queue-", "window"
GRAMMAR = "ORDER[+BACKFILL][/START][+reserve:over_s=TAU,share=PHI], queue-SETTING, FILE.onnx or window:FILE.onnx"


@dataclass(frozen=True)
class Policy:
    """A scheduler: its name as written, the order and the rules, or a model that scores the queue or a window of it."""

    name: str
    order: Order
    rules: Rules
    model: QueueModel | WindowModel | None = None


# Names for what is compared often; others are written out. The published ones decide as SchedInspector's code does.
SHORT: dict[str, tuple[str, Rules]] = {
    "published-sjf": ("sjf", PUBLISHED_NO_BACKFILL),
    "published-sjf-backfill": ("sjf", PUBLISHED_BACKFILL),
    "published-saf-backfill": ("saf", PUBLISHED_BACKFILL),
    "published-fcfs-backfill": ("fcfs", PUBLISHED_BACKFILL),
}


def policy(text: str, *, kill_at_estimate: bool = False) -> Policy:
    """Return the scheduler that a text names.

    Raises:
        InputError: it names none.
        ModelError: it names a file that is no policy over the queue, or no window agent.
    """
    kind, _, file = text.partition(":")
    if kind == WINDOW:
        if not file:
            raise InputError(f"{text!r} names no file; expected {WINDOW}:FILE.onnx")
        from fermata.sim.hpc.window_models import load_window_model

        agent = load_window_model(file)
        return Policy(text, order("fcfs"), Rules(start=Start.SKIP, kill_at_estimate=kill_at_estimate), agent)
    if text.startswith(QUEUE) or text.endswith(".onnx"):
        from fermata.sim.hpc.queue_models import load_queue_model

        model = load_queue_model(text)
        return Policy(text, order("saf"), Rules(start=Start.SKIP, kill_at_estimate=kill_at_estimate), model)
    if text in SHORT:
        name, rules = SHORT[text]
        return Policy(text, order(name), replace(rules, kill_at_estimate=kill_at_estimate))
    rest, reserve = _split_reserve(text)
    rest, slash, start = rest.partition("/")
    name, *backfill = _PLUS.split(rest, maxsplit=1)
    return Policy(
        text,
        order(name),
        Rules(
            start=_choice(Start, start, "start") if slash else Start.COMMIT,
            backfill=_choice(Backfill, backfill[0], "backfill") if backfill else Backfill.NONE,
            reserve_over_s=reserve.get("over_s", float("inf")),
            reserve_share=reserve.get("share", 0.0),
            kill_at_estimate=kill_at_estimate,
        ),
    )


def spelled(order: Order, start: Start, backfill: Backfill = Backfill.NONE) -> str:
    """Return how an order with start semantics and backfilling is written: a reservation can be added to that.

    >>> spelled(order("saf"), Start.SKIP, Backfill.EASY)
    'saf+easy/skip'
    """
    parameters = ",".join(f"{key}={value!r}" for key, value in order.parameters.items())
    word = f"{order.name}:{parameters}" if parameters else order.name
    return f"{word}{f'+{backfill.name.lower()}' if backfill else ''}/{start.name.lower()}"


def _split_reserve(text: str) -> tuple[str, dict[str, float]]:
    before, found, after = text.partition(f"+{_RESERVE}:")
    values: dict[str, float] = {}
    for part in after.split(",") if found else ():
        key, _, number = part.partition("=")
        if key in values:
            raise InputError(f"{text!r}: {key!r} is there twice")
        try:
            values[key] = float(number)
        except ValueError:
            values["?"] = 0.0
    if found and set(values) != {"over_s", "share"}:
        raise InputError(f"{text!r}: expected +reserve:over_s=SECONDS,share=0..1")
    return before, values


def _choice(kind: type[E], text: str, what: str) -> E:
    try:
        return kind[text.upper()]
    except KeyError:
        known = ", ".join(each.name.lower() for each in kind)
        raise InputError(f"no {what} {text!r}; expected one of {known}; a policy is {GRAMMAR}") from None
