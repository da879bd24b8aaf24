"""Devices of an operator that send updates with votes to an actor, round by round."""

from dataclasses import replace

import numpy as np
from support import unlearning_steps
from support.federator_without_network import TOPICS

from foltr.broker.link import InboundMessage
from foltr.core.erasure.receipt import verify_receipt
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.updates import DenseDelta, Vote
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.models import get_model, list_models
from foltr.storage.rounds import latest_round

D = 3
NAMES = tuple("abcde")
KEY, STEP, forget = unlearning_steps.KEY, unlearning_steps.STEP, unlearning_steps.forget
FIVE = RoundPolicy(1, len(NAMES), 60.0, 60.0)
ONES = DenseDelta(dim=D, values=pack_vector([1.0] * D))
BACK = UnlearningPolicy(Strategy.ROLLBACK, every_s=0.0, swap_every_s=0.0, min_coverage=0.0, may_reset=True)
STEPWISE = {strategy: replace(BACK, strategy=strategy) for strategy in (Strategy.RELEARN, Strategy.FED_ERASER)}


class Shown:
    """What devices are told last."""

    def announce(self, model, round_, anchor=None, _pace=None, evaluation=None) -> None:
        self.model, self.round, self.anchor, self.evaluation = model, round_, anchor, evaluation


def said(anchor: int | None, value: int) -> Vote | None:
    return None if anchor is None else Vote(anchor_version=anchor, value=value)


async def play(served, devices, votes: str = "", *, by=1.0, names=NAMES) -> None:
    """One round in which all send, and vote as ``votes`` says: - worse, 0 none, + better, and a blank no vote."""
    opened = await latest_round(served.db, "mail")
    state = served.actor.state
    anchor = None if state.anchor is None else state.anchor.version
    for name, vote in zip(names, votes.ljust(len(names)), strict=True):
        body = DenseDelta(dim=D, values=pack_vector(by * np.eye(D)[ord(name) % D]))
        value = None if vote == " " else said(anchor, "-0+".index(vote) - 1)
        served.update(devices[name], opened.number, opened.base_version, body=body, vote=value)
    await served.turn()
    served.clock.at += 100.0
    await served.turn()


async def order(served, operator, what, number) -> None:
    served.actor.receive(InboundMessage(TOPICS.operator, operator.says(what, number).payload, retained=False))
    await served.turn()


async def origins(served) -> list[tuple[int, int | None, int | None]]:
    """Of each model its version, its base, and the one that it was restored from."""
    return [(row.version, row.base_version, row.restored_version) for row in await list_models(served.db, "mail")]


async def weights_of(served, version: int) -> np.ndarray:
    return unpack_vector((await get_model(served.db, "mail", version)).weights)


async def ruin(served, devices) -> None:
    """Anchor 0, models 1 and 2, and round 3 in which most find model 2 worse; model 3 is model 0 again."""
    await play(served, devices)
    await play(served, devices)
    await play(served, devices, "---++")


def answer(served, devices, gone: str = "") -> None:
    for name in sorted(set(devices) - set(gone)) if served.retained.topics.get(STEP) is not None else ():
        unlearning_steps.answer(served, devices[name], np.eye(D)[ord(name) % D], n_interactions=5)


async def unlearn(served, devices, gone: str = "") -> None:
    for _ in range(80):
        answer(served, devices, gone)
        await served.turn()
        if all(row.state == "done" for row in await list_erasures(served.db, "mail")):
            return
    raise AssertionError("the job does not end")


async def done(served) -> list:
    """The erasures, each with a receipt that its federator has signed."""
    rows = await list_erasures(served.db, "mail")
    assert {row.state for row in rows} == {"done"}
    for row in rows:
        receipt = verify_receipt(row.receipt, KEY.public)
        assert receipt.pseudonym == row.pseudonym
    return rows
