"""Drawn histories of votes, erasures, restarts with other settings, and older copies of the database."""

import numpy as np
import pytest
from support.backups import back_up, restore
from support.voting_devices import BACK, NAMES, D, forget, said, unlearn

from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.updates import DenseDelta
from foltr.federator.round import RoundPolicy
from foltr.storage.models import latest_model, list_models
from foltr.storage.rounds import latest_round

MORE = tuple("fgh")
N_STEPS = 50
STEPS = {"round": 0.78, "forget": 0.04, "restart": 0.1, "copy": 0.04, "restore": 0.04}

Path = list[frozenset[str]]


def weights(path: Path) -> np.ndarray:
    """What these rounds make, one on top of the other."""
    steps = [np.mean([np.eye(D)[ord(name) % D] for name in sorted(names)], axis=0) for names in path]
    return np.sum(steps, axis=0) if steps else np.zeros(D)


async def play(served, devices, names: frozenset[str], opinion: int | None) -> None:
    """A round of these devices, who all say the same of the newest model."""
    opened, anchor = await latest_round(served.db, "mail"), served.actor.state.anchor
    for name in names:
        told = {"evaluation": Evaluation(clicked=1.0, reward=0.8, base_reward=0.5)}
        if anchor is not None and opinion is not None:
            told["vote"] = said(anchor.version, opinion)
        body = DenseDelta(dim=D, values=pack_vector(np.eye(D)[ord(name) % D]))
        served.update(devices[name], opened.number, opened.base_version, body=body, **told)
    await served.turn()
    served.clock.at += 100.0
    await served.turn()


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 12))])
async def test_what_is_served_is_the_sum_of_what_counts(voting, restarted, operator, seed: int) -> None:
    """Whatever was taken back, and whoever was erased: nobody's click is lost, or is in it twice."""
    rng = np.random.default_rng(seed)
    policy = RoundPolicy(1, len(NAMES) + len(MORE), 60.0, 60.0)
    served, devices = await voting(policy, unlearning=BACK, evaluation=True)
    more = {name: operator.enrol(name) for name in MORE}
    await served.join(more.values())
    devices |= more
    paths: dict[int, Path] = {0: []}
    copy, n_restored = None, 0
    for _ in range(N_STEPS):
        step = str(rng.choice(list(STEPS), p=list(STEPS.values())))
        before = await latest_model(served.db, "mail")
        match step:
            case "restart":
                settings = {"anchor": bool(rng.random() < 0.7), "evaluation": bool(rng.random() < 0.9)}
                served = await restarted(served, **settings)
            case "copy":
                copy = (await back_up(served.db), dict(paths), set(devices))
                continue
            case "restore" if copy is not None and copy[2] == set(devices):
                await restore(served.db, copy[0])
                paths = dict(copy[1])
                before = await latest_model(served.db, "mail")
                served = await restarted(served)
            case "forget" if len(devices) > 5:
                name = str(rng.choice(sorted(devices)))
                await forget(served, devices.pop(name))
                await unlearn(served, devices)
                newest = await latest_model(served.db, "mail")
                left = [names - {name} for names in paths[before.version]]
                if newest.version != before.version:
                    paths[newest.version] = [names for names in left if names]
                else:
                    assert not any(name in names for names in paths[before.version])
            case _:
                some = frozenset(name for name in devices if rng.random() < 0.85) or frozenset(devices)
                opinion = None if rng.random() < 0.6 else int(rng.integers(-1, 2))
                await play(served, devices, some, opinion)
                newest = await latest_model(served.db, "mail")
                assert newest.version == before.version + 1
                if newest.restored_version is None:
                    paths[newest.version] = [*paths[before.version], some]
                else:
                    paths[newest.version] = paths[newest.restored_version]
                    n_restored += 1
        newest = await latest_model(served.db, "mail")
        np.testing.assert_allclose(unpack_vector(newest.weights), weights(paths[newest.version]), atol=1e-4)
        assert served.shown.model.version == newest.version
        if (anchor := served.shown.anchor) is not None:
            np.testing.assert_allclose(unpack_vector(anchor.weights), weights(paths[anchor.version]), atol=1e-4)
        kept = [row for row in await list_models(served.db, "mail", 1000) if row.tainted_at is not None]
        assert all(row.withdrawn_at is not None for row in kept), "what an erased client is in is deleted"
    assert n_restored, "no model was ever taken back"
