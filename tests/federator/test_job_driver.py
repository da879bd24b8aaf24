"""What a job asks of the database, and how much of it."""

import numpy as np
import pytest
from support.unlearning_steps import delta, forget, unlearn

from foltr.core.protocol.states import Strategy
from foltr.federator import gathering
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy
from foltr.federator.store import FederationStore
from foltr.storage.models import latest_model

N_FEATURES = 4
NAMES = ("alice", "bob", "carol")
EAGER = UnlearningPolicy(Strategy.FED_ERASER, interval=1, every_s=0.0, swap_every_s=0.0, step_s=10.0, patience_s=30.0)


async def play_rounds(served, devices, n_rounds):
    for number in range(1, n_rounds + 1):
        for i, device in enumerate(devices):
            served.update(device, number, number - 1, body=delta(np.eye(N_FEATURES)[i]))
        await served.turn()


@pytest.fixture
def listings(monkeypatch):
    """The numbers of rounds that were listed, for each question to the database."""
    found = []
    asked = FederationStore.list_stored_rounds

    async def counted(self, first, limit):
        numbers = await asked(self, first, limit)
        found.append(numbers)
        return numbers

    monkeypatch.setattr(FederationStore, "list_stored_rounds", counted)
    return found


@pytest.mark.parametrize("at_once", [3, 5000])
async def test_a_step_does_not_list_the_stored_rounds_again(serve, unsigned, monkeypatch, listings, at_once):
    """They are listed when a job begins, in pages, and once more when it has gone through them: no more with more."""
    monkeypatch.setattr(gathering, "_ROUNDS_AT_ONCE", at_once)
    served = await serve(RoundPolicy(3, 3, 0.0, 60.0), n_features=N_FEATURES, unlearning=EAGER)
    devices = [unsigned(name) for name in NAMES]
    await served.join(devices)
    await play_rounds(served, devices, 8)
    await forget(served, devices[2])
    assert await unlearn(served, devices[:2], [1.0, 0, 0, 0]) == 8
    newest = await latest_model(served.db, "mail")
    assert (newest.version, newest.unlearning_job) == (9, 1)
    at_begin = {3: [[1, 2, 3], [4, 5, 6], [7, 8]], 5000: [[*range(1, 9)]]}[at_once]
    assert [numbers for numbers in listings if numbers] == at_begin
    assert len(listings) <= len(at_begin) + 2
