"""Whatever happens to candidates for a Lease, one acts at a time, and on nothing that another one has changed since."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from tests.candidates import DURATION_S, Candidate, LeaseServer
from tests.late.timeline import Timeline

TROUBLED_S, CALM_S = 300.0, 120.0  # things happen for so long, and then nothing more does


class Episode:
    """One random episode of some candidates; what must not be raises AssertionError."""

    def __init__(self, seed: int, *, goes_back: bool) -> None:
        self.draw, self.goes_back = random.Random(seed), goes_back
        self.timeline = Timeline(0.0)
        self.server = LeaseServer(self.timeline)
        self.share, self.often_s = self.draw.choice([0.0, 0.1, 0.3, 0.5]), self.draw.choice([4.0, 8.0, 15.0])
        self.names = (f"candidate-{number}" for number in itertools.count())
        self.running: list[Candidate] = []
        self.gone: list[Candidate] = []
        self.wrong: list[str] = []

    @property
    def calm(self) -> bool:
        return self.timeline.now_s >= TROUBLED_S

    def run(self) -> None:
        for _ in range(self.draw.choice([2, 3])):
            self.begin(next(self.names))
        self.timeline.after(self.draw.uniform(1.0, 20.0), self.happen)
        self.timeline.after(TROUBLED_S, lambda: None)
        while self.timeline.now_s < TROUBLED_S + CALM_S:
            everybody = [*self.running, *self.gone]
            self.timeline.now_s = min(self.timeline.next_s, *(each.next_s for each in everybody))
            self.timeline.happen()
            for each in everybody:
                each.run_due()
                self.check()
        assert not self.wrong
        assert not any(each.crashed for each in [*self.running, *self.gone])
        assert sum(each.acts for each in self.running) == 1, "nobody acts, though nothing happens any more"
        for each in [*self.running, *self.gone]:
            each.close()

    def begin(self, name: str) -> None:
        self.running.append(Candidate(name, self.server, self.timeline, self.draw, self.trouble, self.confirmed))

    def trouble(self) -> float:
        return 0.0 if self.calm else self.share

    def check(self) -> None:
        if self.timeline.now_s < self.server.changed_s + 3 * DURATION_S:
            return  # who was the holder of a Lease that is not there any more may act until it has seen that
        acting = [each for each in self.running if each.acts]
        assert len(acting) <= 1, "two act at once"
        for each in acting:
            others = self.server.holders_since(each.since_s) - {each.name}
            assert not others, f"{each.name} acts on what it knew before {others} did"

    def confirmed(self, candidate: Candidate, asked_s: float) -> None:
        changed_s = self.server.changed_s
        if candidate.since_s < changed_s < asked_s:
            self.wrong.append(f"{candidate.name} has confirmed what it read before the state went back")

    def happen(self) -> None:
        if self.calm:
            return
        self.timeline.after(self.draw.expovariate(1.0 / self.often_s), self.happen)
        acting = [each for each in self.running if each.acts]
        among = acting if acting and self.draw.random() < 0.6 else self.running
        if among:
            events = [self.freeze, self.freeze, self.kill, self.cut_off, self.stop]
            happens = self.draw.choice([*events, self.restore, self.delete] if self.goes_back else events)
            happens(self.draw.choice(among))

    def freeze(self, whom: Candidate) -> None:
        """Have it do nothing for a while; before that it may be cut off, so that it has heard of no latest renewal."""
        after_s = self.draw.choice([0.0, 2.5])
        whom.cut_until_s = self.timeline.now_s + after_s
        for_s = after_s + self.draw.choice([1.0, 5.0, 14.0, 16.0, 20.0, 40.0]) * self.draw.uniform(0.8, 1.2)
        until_s = self.timeline.now_s + for_s
        self.timeline.after(after_s, lambda: setattr(whom, "frozen_until_s", until_s))

    def cut_off(self, whom: Candidate) -> None:
        whom.cut_until_s = self.timeline.now_s + self.draw.uniform(1.0, 40.0)

    def kill(self, whom: Candidate) -> None:
        """End it at once; it is begun again under its name, as a container in its pod, or another one is."""
        whom.killed = True
        self.leave(whom, whom.name if self.draw.random() < 0.3 else next(self.names))

    def stop(self, whom: Candidate) -> None:
        whom.stop()
        self.leave(whom, next(self.names))

    def leave(self, whom: Candidate, successor: str) -> None:
        self.running.remove(whom)
        self.gone.append(whom)
        self.timeline.after(self.draw.uniform(0.0, 40.0), lambda: self.begin(successor))

    def restore(self, _whom: Candidate) -> None:
        # One that is no older than what its holder last heard of it cannot be told from what it was.
        heard = min((each.heard for each in self.running if each.since_s < math.inf), default=math.inf)
        old = [raw for _, raw in self.server.written if int(raw["metadata"]["resourceVersion"]) < heard]
        if old:
            self.server.restore(self.draw.choice(old[-30:]))

    def delete(self, _whom: Candidate) -> None:
        self.server.delete()


@pytest.mark.parametrize("seed", [*range(20), 178])
def test_one_acts_and_on_nothing_that_another_one_has_changed(seed: int) -> None:
    Episode(seed, goes_back=False).run()


@pytest.mark.parametrize("seed", range(20))
def test_what_went_back_to_what_it_was_is_never_confirmed(seed: int) -> None:
    Episode(seed, goes_back=True).run()
