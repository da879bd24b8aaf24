"""Drawn histories of rounds, votes, erasures and restarts: the model is the sum of what counts, whatever came first."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from support.voting_devices import BACK, NAMES, D, forget, said, unlearn

from foltr.core.aggregation.standing import Verdict, standing_of
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.updates import DenseDelta
from foltr.federator.round import RoundPolicy
from foltr.storage.models import latest_model, list_models
from foltr.storage.rounds import latest_round

MORE = tuple("fgh")
N_STEPS = 14


@dataclass
class Told:
    """What should be: the rounds that the newest model is made of, each as who is in it, and those of the anchor.

    Attributes:
        taught: how many updates each has in completed rounds, of those who were not forgotten.
        votes: on the present anchor.
    """

    path: list[frozenset[str]] = field(default_factory=list)
    anchor: list[frozenset[str]] = field(default_factory=list)
    is_anchor: bool = True
    taught: Counter[str] = field(default_factory=Counter)
    votes: dict[str, int] = field(default_factory=dict)

    def weights(self, path: list[frozenset[str]]) -> np.ndarray:
        """What these rounds make, one on top of the other."""
        steps = [np.mean([np.eye(D)[ord(name) % D] for name in sorted(names)], axis=0) for names in path]
        return np.sum(steps, axis=0) if steps else np.zeros(D)

    def end_round(self, names: frozenset[str], opinion: int) -> None:
        votes = self.votes | dict.fromkeys(names, opinion)
        sent = self.taught + Counter(names)
        verdict = standing_of({name: votes.get(name, 0) for name in sent}, sent).verdict
        if self.is_anchor:
            verdict = Verdict.KEEP
        if verdict is Verdict.TAKE_BACK:
            self.path, self.is_anchor, self.votes = self.anchor, True, {}
            return
        self.votes = votes
        if verdict is Verdict.MOVE_ANCHOR:
            self.anchor, self.votes = self.path, {}
        self.path, self.is_anchor = [*self.path, names], False
        self.taught.update(names)

    def forget(self, name: str) -> None:
        self.votes.pop(name, None)
        if name not in self.taught:
            return
        del self.taught[name]
        left = [names - {name} for names in self.path]
        self.path = self.anchor = [names for names in left if names]
        self.is_anchor, self.votes = True, {}


ALWAYS = [("sqlite", 0), ("sqlite", 7), ("postgresql", 8)]
AT_NIGHT = [*(("sqlite", seed) for seed in range(1, 7)), ("postgresql", 9)]


@pytest.mark.parametrize(
    ("served_url", "seed"),
    ALWAYS + [pytest.param(*each, marks=pytest.mark.nightly) for each in AT_NIGHT],
    indirect=["served_url"],
)
async def test_what_is_served_is_the_sum_of_what_counts(voting, restarted_voting, operator, seed: int) -> None:
    """No click that was taken back is in it, and nobody who was forgotten; the same of the anchor."""
    rng, told = np.random.default_rng(seed), Told()
    served, devices = await voting(RoundPolicy(1, len(NAMES) + len(MORE), 60.0, 60.0), unlearning=BACK)
    more = {name: operator.enrol(name) for name in MORE}
    await served.join(more.values())
    devices |= more
    for _ in range(N_STEPS):
        match rng.choice(["round", "worse", "better", "forget", "restart"], p=[0.35, 0.2, 0.2, 0.15, 0.1]):
            case "restart":
                served = await restarted_voting(served)
            case "forget" if len(devices) > 4:
                name = str(rng.choice(sorted(devices)))
                await forget(served, devices.pop(name))
                told.forget(name)
                await unlearn(served, devices)
            case "worse":
                await _round(served, devices, frozenset(devices), -1, told)
            case "better":
                await _round(served, devices, frozenset(devices), 1, told)
            case _:
                some = frozenset(name for name in devices if rng.random() < 0.7) or frozenset(devices)
                await _round(served, devices, some, 0, told)
        newest, anchor = await latest_model(served.db, "mail"), served.shown.anchor
        np.testing.assert_allclose(unpack_vector(newest.weights), told.weights(told.path), atol=1e-5)
        np.testing.assert_allclose(unpack_vector(anchor.weights), told.weights(told.anchor), atol=1e-5)
        assert (newest.version == anchor.version) == told.is_anchor
        kept = [row for row in await list_models(served.db, "mail", 1000) if row.tainted_at is not None]
        assert all(row.withdrawn_at is not None for row in kept), "what an erased client is in is deleted"


async def _round(served, devices, names: frozenset[str], opinion: int, told: Told) -> None:
    """A round of these devices, who all say the same of the newest model."""
    opened = await latest_round(served.db, "mail")
    for name in names:
        body = DenseDelta(dim=D, values=pack_vector(np.eye(D)[ord(name) % D]))
        vote = said(served.actor.state.anchor.version, opinion)
        served.update(devices[name], opened.number, opened.base_version, body=body, vote=vote)
    await served.turn()
    served.clock.at += 100.0
    await served.turn()
    told.end_round(names, opinion)
