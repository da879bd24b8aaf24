"""Drawn histories in which a federator dies wherever it can, while models are rolled back and nobody is online."""

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from support.voting_devices import BACK, NAMES, D, said

from foltr.core.failpoints import Failpoint
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.membership import Status
from foltr.core.protocol.states import Pacing
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.updates import DenseDelta
from foltr.federator.round import RoundPolicy
from foltr.storage.models import list_models
from foltr.storage.queries import list_contributions, list_rounds
from foltr.storage.rounds import latest_round

N_STEPS = 40
MODULES = (
    "foltr.federator.rounds",
    "foltr.federator.batch_writer",
    "foltr.storage.anchors",
    "foltr.storage.rounds",
    "foltr.storage.arrivals",
)
DEADLINE = RoundPolicy(1, len(NAMES), 60.0, 60.0)
POLICIES = {
    "deadline": DEADLINE,
    "buffered": replace(DEADLINE, pacing=Pacing.BUFFERED, staleness_limit=3, staleness_exponent=0.0),
    "selected": replace(DEADLINE, over_selection=0.0),
}


class Died(BaseException):
    """A process ends at a failpoint: nothing on the way catches it."""


class Deaths:
    """Dies at the failpoint after so many; at none where that is below 0."""

    def __init__(self, n_survived: int) -> None:
        self._n_left = n_survived

    def __call__(self, name: Failpoint) -> None:
        self._n_left -= 1
        if self._n_left == -1:
            raise Died(name)


def body_of(name: str) -> np.ndarray:
    return np.eye(D, dtype=np.float32)[ord(name) % D]


async def be_away(served, devices) -> None:
    """All go offline for three deadlines, and come back."""
    for online in (False, True):
        for name, device in devices.items():
            status = Status(federation="mail", client_id=name, online=online)
            served.receive(device, ClientTopic.STATUS, status)
        await served.turn()
        for _ in range(0 if online else 3):
            served.clock.at += 61.0
            await served.turn()


async def play(served, devices, rng) -> None:
    """A round of most devices, who now and then all say the same of the newest model."""
    opened, anchor = await latest_round(served.db, "mail"), served.actor.state.anchor
    opinion = int(rng.integers(-1, 2)) if rng.random() < 0.4 else 0
    for name in (name for name in NAMES if rng.random() < 0.95):
        told = {"evaluation": Evaluation(clicked=1.0, reward=0.8, base_reward=0.5)}
        if anchor is not None:
            told["vote"] = said(anchor.version, opinion)
        body = DenseDelta(dim=D, values=pack_vector(body_of(name)))
        served.update(devices[name], opened.number, opened.base_version, body=body, **told)
    await served.turn()
    served.clock.at += 61.0
    await served.turn()


async def require_consistent(served) -> None:
    """Each model is its base and the mean of what counts in its round, or an older one; one round is open."""
    sent = defaultdict(list)
    for row in await list_contributions(served.db, "mail"):
        sent[row.round].append(row.client_id)
    rounds = sorted(await list_rounds(served.db, "mail", limit=1000), key=lambda row: row.round)
    assert [row.round for row in rounds] == list(range(1, len(rounds) + 1))
    assert sum(row.closed_at is None for row in rounds) == 1
    made_by = {row.model_version: row for row in rounds if row.model_version is not None}
    weights: dict[int, np.ndarray] = {}
    for model in await list_models(served.db, "mail", limit=1000):
        if model.version == 0:
            weights[0] = np.zeros(D)
        elif model.restored_version is not None:
            weights[model.version] = weights[model.restored_version]
        else:
            row = made_by[model.version]
            weights[model.version] = weights[row.base_version] + np.mean([*map(body_of, sent[row.round])], axis=0)
        np.testing.assert_allclose(unpack_vector(model.weights), weights[model.version], atol=1e-4)
    assert served.shown.model.version == max(weights)


@pytest.mark.parametrize(
    ("seed", "pacing"),
    [
        (0, "buffered"),
        (2, "deadline"),
        *(
            pytest.param(*each, marks=pytest.mark.nightly)
            for each in ((0, "selected"), (0, "deadline"), (2, "selected"), (2, "buffered"))
        ),
    ],
)
async def test_what_is_stored_is_consistent_wherever_it_dies(voting, restarted, pacing: str, seed: int) -> None:
    """Also in the take-back of a model, and in a round that begins anew; and what is announced is the newest model."""
    rng = np.random.default_rng(seed)
    served, devices = await voting(POLICIES[pacing], evaluation=True, unlearning=BACK)
    for _ in range(N_STEPS):
        deaths = Deaths(int(rng.integers(0, 12)) if rng.random() < 0.3 else -1)
        try:
            with ExitStack() as patches:
                for module in MODULES:
                    patches.enter_context(patch(f"{module}.failpoint", deaths))
                if rng.random() < 0.1:
                    await be_away(served, devices)
                await play(served, devices, rng)
        except Died:
            served = await restarted(served)
            served.clock.at += 100.0
            await served.turn()
        await require_consistent(served)
    assert any(row.restored_version is not None for row in await list_models(served.db, "mail", limit=1000))
