"""Attackers of one process: they wait for each other, but not for ever, and craft from what they have."""

import asyncio

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.waiting import PATIENCE_S

from foltr.core.errors import SettingsError
from foltr.core.protocol.announcements import RoundAnnouncement, Selection
from foltr.core.protocol.client_selection import cutoff, round_seed, ticket
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.trainings import EvolutionTraining, PdgdTraining
from foltr.core.protocol.updates import DenseDelta, EvolutionPair, ModelUpdate, PartDelta
from foltr_research.attacks.attacked_round import attack_rng, craft
from foltr_research.attacks.registry import read_attack
from foltr_research.cli.collusion import Collusion

D, SEED = 4, 9
NAMES = ("a", "b", "c", "d")


def learned(name):
    return np.random.default_rng(list(name.encode())).normal(size=D).astype(np.float32)


def update_of(name, round_number=1, body=None):
    return ModelUpdate(
        federation="mail",
        client_id=name,
        update_id="0" * 32,
        round=round_number,
        base_version=round_number + 6,
        after=0,
        through=5,
        base_hash=bytes(16),
        n_interactions=5,
        body=body or DenseDelta(dim=D, values=pack_vector(learned(name))),
    )


def announced(round_number=1, training=None, selection=None):
    return RoundAnnouncement(
        federation="mail",
        round=round_number,
        open=True,
        base_version=round_number + 6,
        base_hash=bytes(16),
        withdraws_below=0,
        opened_at=0.0,
        closes_at=1.0,
        training=training or PdgdTraining(),
        selection=selection,
    )


async def sent(collusion, names, **of_round):
    """What each of them sends, all at work at once."""
    async with asyncio.timeout(PATIENCE_S):
        bodies = await asyncio.gather(
            *(collusion.alteration_of(name)(update_of(name), announced(**of_round)) for name in names)
        )
    return np.array([unpack_vector(body.values) for body in bodies])


def rows(*names):
    return np.array([learned(name) for name in names], np.float64)


async def test_they_send_what_is_crafted_from_all_of_them():
    """In the order of their names, whoever comes first; honest devices send what they learned, unheard."""
    spec = read_attack("lie", {"z": 1.5})
    collusion = Collusion(spec, NAMES, 3, SEED)
    assert collusion.alteration_of("d") is None
    expected = craft(spec, rows("a", "b", "c"), None, 4, None, attack_rng(SEED, 8))
    np.testing.assert_array_equal(await sent(collusion, ["c", "a", "b"]), expected[[2, 0, 1]])


async def test_with_full_knowledge_the_honest_are_overheard():
    """They send what they learned all the same, and nobody keeps them waiting."""
    spec = read_attack("fang-trimmed-mean", {"knowledge": "full"})
    collusion = Collusion(spec, NAMES, 2, SEED)
    attacking = asyncio.create_task(sent(collusion, ["a", "b"]))
    np.testing.assert_array_equal(await sent(collusion, ["d"]), rows("d"))
    await asyncio.sleep(0)
    assert not attacking.done()
    await sent(collusion, ["c"])
    expected = craft(spec, rows("a", "b"), rows("c", "d"), 4, None, attack_rng(SEED, 8))
    np.testing.assert_array_equal(await attacking, expected)


async def test_nobody_waits_for_ever():
    """Without the third, two attack; it attacks alone when it comes. Who is missing is told."""
    spec = read_attack("lie", {"z": 1.5})
    collusion = Collusion(spec, NAMES, 3, SEED, patience_s=0.05)  # clock: runs out
    with capture_logs() as logs:
        together = await sent(collusion, ["a", "b"])
    np.testing.assert_array_equal(together, craft(spec, rows("a", "b"), None, 4, None, attack_rng(SEED, 8)))
    assert [(line["event"], line["missing"]) for line in logs] == [("attackers_incomplete", ["c"])]
    np.testing.assert_array_equal(await sent(collusion, ["c"]), rows("c"))


async def test_those_that_a_round_does_not_ask_are_not_waited_for():
    """The selection is public: attackers work out who of them is asked, and how many updates there will be."""
    spec, first_seed = read_attack("sign-flip"), bytes(32)
    collusion = Collusion(spec, NAMES, 4, SEED)
    seed = round_seed(first_seed, 1)
    asked = min(NAMES, key=lambda name: ticket(seed, name))
    selection = Selection(first_seed=first_seed, cutoff=cutoff(seed, NAMES, 1), n_selected=1, n_eligible=4)
    np.testing.assert_array_equal(await sent(collusion, [asked], selection=selection), -rows(asked))


async def test_what_covers_a_part_of_the_weights_stays_a_part():
    """FedPer's attackers change the shared part; a method that sends seeds and metrics ends the run."""
    collusion = Collusion(read_attack("sign-flip"), NAMES, 1, SEED)
    body = PartDelta(dim=9, start=2, values=pack_vector(learned("a")))
    altered = await collusion.alteration_of("a")(update_of("a", body=body), announced())
    assert altered == PartDelta(dim=9, start=2, values=pack_vector(-learned("a")))
    collusion = Collusion(read_attack("clicks"), NAMES, 2, SEED)
    assert {collusion.alteration_of(name) for name in NAMES} == {None}
    assert collusion.attackers == {"a", "b"}
    collusion = Collusion(read_attack("sign-flip"), NAMES, 1, SEED)
    body = EvolutionPair(seed=1, plus=0.5, minus=0.5)
    ending = asyncio.create_task(collusion.fails())
    with pytest.raises(SettingsError, match=r"attack: foltr-es sends seeds and metrics.*choose attack = clicks"):
        await collusion.alteration_of("a")(update_of("a", body=body), announced(training=EvolutionTraining()))
    with pytest.raises(SettingsError, match="foltr-es"):
        await ending
