"""Pages of clients and of events: filters, cursors, and a cost that does not grow with history."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from support.history_database import OPENED
from support.long_histories import N_CLIENTS, long_history, steps_of

from foltr.storage import pages
from foltr.storage.pages import ClientState, EventFilter
from foltr.storage.queries import list_contributions
from foltr.storage.records import Batch, MembershipChange, NewEvent, QuarantineChange

from .conftest import at


@pytest.fixture
async def crowd(stored):
    """Clients a to d: b is offline, c in quarantine and proposed, d has left; a and the stranger m are refused."""
    await stored.join("a", "b", "c", "d")
    await stored.open(1)
    late = NewEvent(at(5), "update_rejected", "", "late", "a", 1, 3)
    refused = [
        *(late, replace(late, code="stale", n=1, at=at(6)), replace(late, code="duplicate", at=at(7))),
        replace(late, code="malformed", client_id="m", n=9, at=at(8)),
    ]
    proposed = [NewEvent(at(9), "quarantine_proposed", "far away", None, name, 1) for name in "ac"]
    events = [NewEvent(at(-9), "client_joined", "", None, "a"), *refused, *proposed]
    moved = [MembershipChange("b", "offline", at(5), sequence=1, status_sequence=1)]
    moved += [MembershipChange("d", "left", at(5), sequence=1)]
    out = QuarantineChange("c", at(9), "it flips signs")
    sent = [stored.update("a"), stored.update("b")]
    await stored.commit(Batch(updates=sent, membership=moved, quarantines=[out], events=events))
    return stored


async def names(stored, **more):
    found = await pages.page_clients(stored.db, "web", **({"since": at(0), "limit": 10} | more))
    return [line.client.client_id for line in found]


async def test_clients_come_by_name_with_what_they_did(crowd):
    """Contributions to the newest rounds, and refusals by reason, the most frequent first; a repeated one is none."""
    lines = await pages.page_clients(crowd.db, "web", since=at(0), limit=10)
    assert [line.client.client_id for line in lines] == ["a", "b", "c", "d"]
    assert [line.n_contributions for line in lines] == [1, 1, 0, 0]
    assert list(lines[0].refusals.items()) == [("late", 3), ("stale", 1)]
    assert [dict(line.refusals) for line in lines[1:]] == [{}, {}, {}]
    later = await pages.page_clients(crowd.db, "web", since=at(6), limit=1)
    assert [dict(line.refusals) for line in later] == [{"stale": 1}]
    assert await pages.refusals_of(crowd.db, "web", "m", at(0)) == {"malformed": 9}
    assert await pages.refusals_of(crowd.db, "web", "nobody", at(0)) == {}


async def test_each_state_has_its_clients(crowd):
    """As they are counted; with refusals also who never joined."""
    found = {state: "".join(await names(crowd, state=state)) for state in ClientState}
    assert found == {
        ClientState.ONLINE: "ac", ClientState.OFFLINE: "b", ClientState.QUARANTINED: "c", ClientState.PROPOSED: "a",
        ClientState.LEFT: "d", ClientState.REVOKED: "", ClientState.REFUSED: "am",
    }  # fmt: skip


async def test_clients_are_found_by_a_part_of_their_name(crowd):
    """In any case, and a wildcard of SQL is a letter like others; page by page from a name."""
    await crowd.join("Phone_1", "phone-2")
    assert await names(crowd, search="PHONE") == sorted(["Phone_1", "phone-2"], key=str.encode)
    assert await names(crowd, search="e_") == ["Phone_1"]
    assert await names(crowd, search="%") == []
    assert await names(crowd, after="b", limit=1) == ["c"]


async def test_an_erased_client_is_on_no_page(crowd):
    """Even if a message of it is refused afterwards."""
    await crowd.erase("a")
    await crowd.commit(Batch(events=[NewEvent(at(200), "update_rejected", "", "forgotten", "a", 1)]))
    assert "a" not in await names(crowd)
    assert await names(crowd, state=ClientState.REFUSED) == ["m"]


async def kinds(stored, before=None, limit=10, **sought):
    page = await pages.page_events(stored.db, "web", EventFilter(**sought), before=before, limit=limit)
    return [(event.client_id, event.code or event.kind) for event in page.events], page.before


async def test_events_come_newest_first_by_any_filter(crowd):
    """Kind, reason, client, round, or refusals alone, and any of them together."""
    everything, before = await kinds(crowd)
    assert everything[0] == ("c", "quarantine_proposed")
    assert (everything[-1], len(everything), before) == (("a", "client_joined"), 7, None)
    assert await kinds(crowd, kind="client_joined") == ([("a", "client_joined")], None)
    assert await kinds(crowd, code="late") == ([("a", "late")], None)
    assert await kinds(crowd, client_id="m") == ([("m", "malformed")], None)
    assert await kinds(crowd, client_id="nobody") == ([], None)
    assert (await kinds(crowd, round=1))[0] == everything[:-1]
    assert await kinds(crowd, refused=True) == ([("m", "malformed"), ("a", "stale"), ("a", "late")], None)
    assert await kinds(crowd, refused=True, client_id="a", round=1) == ([("a", "stale"), ("a", "late")], None)
    assert await kinds(crowd, round=2) == ([], None)


async def test_events_continue_below_an_id(crowd):
    """Page by page, each once, and the last page says that it is the last."""
    everything, _ = await kinds(crowd)
    found, before = [], None
    for _ in range(4):
        page, before = await kinds(crowd, before, limit=2)
        found += page
    assert (found, before) == (everything, None)


async def test_a_search_that_looked_through_enough_says_where_it_continues(crowd, monkeypatch):
    """A page without events that is not the last one."""
    monkeypatch.setattr("foltr.storage.pages._MOST_EVENTS", 3)
    found, before = await kinds(crowd, kind="client_joined")
    assert (found, before is not None) == ([], True)
    found, before = await kinds(crowd, before, kind="client_joined")
    assert found == []
    assert await kinds(crowd, before, kind="client_joined") == ([("a", "client_joined")], None)


async def test_the_latest_round_has_ended(crowd):
    """None before the first has."""
    assert await pages.latest_ended_round(crowd.db, "web") is None
    await crowd.abandon_round(1, "too_few", at(60), crowd.opening(2))
    assert await pages.latest_ended_round(crowd.db, "web") == 1


RARE = "device-1"
QUESTIONS = {
    "clients": lambda db: pages.page_clients(db, "mail", since=OPENED, limit=50),
    "refused": lambda db: pages.page_clients(db, "mail", since=OPENED, state=ClientState.REFUSED, limit=50),
    "events": lambda db: pages.page_events(db, "mail", EventFilter(), limit=100),
    "a rare kind": lambda db: pages.page_events(db, "mail", EventFilter(kind="client_quarantined"), limit=100),
    "of a client": lambda db: pages.page_events(db, "mail", EventFilter(client_id=RARE, refused=True), limit=100),
    "of a round": lambda db: pages.page_events(db, "mail", EventFilter(round=9), limit=100),
    "contributions": lambda db: list_contributions(db, "mail", client_id=RARE),
    "contributions by page": lambda db: list_contributions(db, "mail", client_id=RARE, limit=100),
    "next page of contributions": lambda db: list_contributions(db, "mail", client_id=RARE, before=10**6, limit=100),
}
OF_OTHERS = f"DELETE FROM updates WHERE round > 5 AND client = (SELECT id FROM clients WHERE client_id = '{RARE}')"  # noqa: S608


async def test_a_long_history_costs_no_more(tmp_path, monkeypatch):
    """Five times as many rounds, updates and events than are looked through change nothing; nor do those of others."""
    monkeypatch.setattr("foltr.storage.pages._MOST_EVENTS", 250)
    steps = []
    for n_rounds in (300, 1500):
        async with await long_history(f"sqlite:///{tmp_path / str(n_rounds)}", n_rounds) as db:
            async with db.transaction() as connection:
                await connection.execute(text(OF_OTHERS))
            answers = {name: await steps_of(db, question) for name, question in QUESTIONS.items()}
            lines = await pages.page_clients(db, "mail", since=OPENED + timedelta(days=1), limit=50)
        rounds = [sorted(row.round for row in answers[name][0]) for name in QUESTIONS if "contributions" in name]
        assert rounds == [[3, 4, 5]] * 3
        steps.append({name: n for name, (_, n) in answers.items()})
    assert [line.n_contributions for line in lines][3:] == [0] + [pages.COUNTED_ROUNDS] * (N_CLIENTS - 1)
    assert {name: n for name, n in steps[1].items() if n > 1.3 * steps[0][name] + 10} == {}
