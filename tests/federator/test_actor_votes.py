"""Devices vote on the newest model: most of them can have it rolled back, or the anchor moved; fewer can do neither."""

from dataclasses import replace

import pytest
from support.voting_devices import NAMES, ONES, D, order, origins, play, ruin, said

from foltr.core.protocol.orders import QuarantineClient, RevokeClient
from foltr.core.protocol.trainings import EvolutionTraining, FpdgdPaperTraining
from foltr.storage.models import latest_model
from foltr.storage.queries import get_round, list_events
from foltr.storage.rounds import latest_round


async def test_most_votes_take_the_newest_model_back(voting) -> None:
    """The anchor is served again, devices are told which round is open, and what it is based on."""
    served, devices = await voting()
    await ruin(served, devices)
    assert await origins(served) == [(0, None, None), (1, 0, None), (2, 1, None), (3, 0, 0)]
    assert (served.shown.model.version, served.shown.anchor.version) == (3, 3)
    assert served.shown.model.weights == bytes(4 * D)
    assert (served.shown.round.round, served.shown.round.base_version) == (4, 3)
    third = await get_round(served.db, "mail", 3)
    assert (third.state, third.reason, third.n_worse, third.n_better) == ("abandoned", "model_rolled_back", 3, 2)
    (event,) = await list_events(served.db, "mail", kind="model_rolled_back")
    assert "replaces model 2: of 5 clients by their 15 updates, 9 found it worse and 6 better" in event.detail
    assert "models 1 to 2" in event.detail


async def test_no_click_of_the_round_that_ends_is_lost_or_counted_twice(voting) -> None:
    """Devices hear that it was abandoned, and what they send again counts once."""
    served, devices = await voting()
    await play(served, devices)
    before = {name: served.actor.state.members.counted_through(name) for name in NAMES}
    served.receipts.sent.clear()
    await play(served, devices, "-----")
    assert {name: served.actor.state.members.counted_through(name) for name in NAMES} == before
    assert served.receipts.codes()["round_abandoned"] == len(NAMES)
    await play(served, devices)
    assert (await latest_model(served.db, "mail")).version == 3
    assert {served.actor.state.members.counted_through(name) for name in NAMES} == {200}


@pytest.mark.parametrize("votes", ["--00 ", "--+++", "--   ", "++00 "], ids=str)
async def test_less_than_most_of_the_voters_take_nothing_back(voting, votes: str) -> None:
    """40 % of the clients can vote as they like; who has no vote is no majority's."""
    served, devices = await voting()
    await play(served, devices)
    await play(served, devices, votes)
    assert [row[2] for row in await origins(served)] == [None] * 3
    assert not await list_events(served.db, "mail", kind="model_rolled_back")


async def test_the_anchor_moves_to_what_most_found_better(voting) -> None:
    """To the model that they had: the one that the same round makes nobody has seen yet."""
    served, devices = await voting()
    await play(served, devices)
    assert (served.shown.model.version, served.shown.anchor.version) == (1, 0)
    await play(served, devices, "+++0-")
    assert (await latest_round(served.db, "mail")).anchor_version == served.shown.anchor.version == 1
    (event,) = await list_events(served.db, "mail", kind="anchor_moved")
    assert (
        event.detail
        == "model 1 replaces model 0 as the anchor: of 5 clients by their 10 updates, 2 found it worse and 6 better"
    )
    await play(served, devices, "-----")
    assert await origins(served) == [(0, None, None), (1, 0, None), (2, 1, None), (3, 1, 1)]


async def test_whoever_is_in_quarantine_or_revoked_has_no_vote(voting, operator) -> None:
    """Neither for those who lied before."""
    served, devices = await voting()
    await play(served, devices)
    await play(served, devices, "--000")
    mail = {"federation": "mail"}
    await order(served, operator, QuarantineClient(client_id="c", reason="?", **mail), 1)
    await play(served, devices, "--+0", names="abde")
    assert [row[2] for row in await origins(served)][-1] is None
    await order(served, operator, RevokeClient(client_id="d", void_below=99, **mail), 2)
    await play(served, devices, "---", names="abe")
    assert [row[2] for row in await origins(served)][-1] is None, "three are too few"


async def test_where_nobody_is_to_compare_there_is_no_anchor(voting) -> None:
    """By its setting, or as the method's lists are not drawn by score; then votes are not stored."""
    served, devices = await voting(anchor=False)
    opened = await latest_round(served.db, "mail")
    for name in NAMES:
        served.update(devices[name], 1, 0, body=ONES, vote=said(0, -1))
    await served.turn()
    assert (opened.anchor_version, served.shown.anchor) == (None, None)
    assert (await get_round(served.db, "mail", 1)).n_worse == 0
    assert served.plan.no_votes_because(None) is None
    evolving = replace(served.plan, anchor=True, training=EvolutionTraining())
    assert not evolving.asks_for_votes(None)
    assert "foltr-es" in evolving.no_votes_because(None)
    noisy = replace(served.plan, anchor=True, training=FpdgdPaperTraining(n_clients=4))
    assert "fpdgd-paper adds noise" in noisy.no_votes_because(None)


async def test_the_last_round_may_be_taken_back_and_others_follow_later(voting, restarted) -> None:
    """The restored model is the newest, and the anchor of the next round that is ever opened."""
    served, devices = await voting(stop_after_round=2)
    await play(served, devices)
    await play(served, devices, "-----")
    assert served.actor.finished
    assert (served.shown.model.version, served.shown.round.last) == (2, True)
    following = await restarted(served, stop_after_round=None)
    assert (following.shown.model.version, following.shown.anchor.version) == (2, 2)
    assert (await latest_round(served.db, "mail")).anchor_version == 2
