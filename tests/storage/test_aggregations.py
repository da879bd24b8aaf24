"""What a rule made of a round: stored with its model or not at all, and never in the way of closing the round."""

import math

import pytest
from sqlalchemy import select
from support.adaptive_memory import memory_of

from foltr.storage import queries
from foltr.storage.aggregation_tables import round_aggregations, update_fates
from foltr.storage.records import Batch, NewAggregation, NewEvent, NewFate, NewModel
from foltr.storage.rounds import complete_round

from .conftest import at, statements_of

RULE = {"aggregation": "nnm+krum", "byzantine": 3.0, "aggregation_parameters": "{}", "aggregation_fallback": "abandon"}
FATES = (
    NewFate("a", "kept", 0.75, 1.5, ""),
    NewFate("b", "clipped", 0.25, 3.0, "norm 3 of at most 1"),
    NewFate("c", "dropped", 0.0, 9.0, "far from its neighbours"),
)
MADE = NewAggregation("median", '{"n": 3.0}', "krum needs 5 updates, 3 arrived", FATES)


@pytest.fixture
async def closing(stored):
    """Round 1 of three clients, opened with a rule and about to be closed."""
    await stored.join("c", "a", "b")
    for _ in range(2):
        await stored.open(1, **RULE)
    found, _ = await stored.load_open_round()
    assert {key: getattr(found, key) for key in RULE} == RULE
    await stored.send(*"abc")
    await stored.begin_aggregation(1)
    return stored


async def test_what_became_of_each_update_is_stored_with_the_model(closing) -> None:
    """Rule, parameters, fallback and fates; the same again, its answer lost, adds nothing."""
    proposed = NewEvent(at(60), "quarantine_proposed", "dropped in 9 of 10 rounds", client_id="c", round=1)
    model = NewModel(1, closing.weights, None, memory_of(*"abc"), MADE, [proposed])
    for _ in range(2):
        await closing.complete_round(1, model, at(60), closing.opening(2, 1))
    made = await queries.get_aggregation(closing.db, "web", 1)
    assert (made.rule, made.parameters, made.fallback_reason) == (MADE.rule, MADE.parameters, MADE.fallback_reason)
    assert (made.n_kept, made.n_clipped, made.n_dropped) == (1, 1, 1)
    row = await queries.get_round(closing.db, "web", 1)
    assert (row.aggregation, row.rule, row.fallback_reason) == ("nnm+krum", "median", MADE.fallback_reason)
    assert (row.n_updates, row.n_clipped, row.n_dropped) == (3, 1, 1)
    shown = await queries.list_contributions(closing.db, "web", round_number=1)
    fates = [NewFate(line.client_id, line.fate, line.share, line.score, line.fate_reason) for line in shown]
    assert tuple(fates) == FATES
    assert (await closing.latest_model()).defence_state == memory_of(*"abc")
    (event,) = await queries.list_events(closing.db, "web", kind="quarantine_proposed")
    assert (event.client_id, event.round, event.detail) == ("c", 1, "dropped in 9 of 10 rounds")
    assert await queries.count_fates(closing.db, "web", "c") == {"kept": 0, "clipped": 0, "dropped": 1}


async def test_a_plain_mean_leaves_no_rows(closing) -> None:
    """Its rounds cost what they always did; the history says mean, and that nothing was left out."""
    await closing.end(1)
    assert await queries.get_aggregation(closing.db, "web", 1) is None
    for table in (round_aggregations, update_fates):
        assert await closing.read(select(table)) == []
    row = await queries.get_round(closing.db, "web", 1)
    assert (row.rule, row.fallback_reason, row.n_clipped, row.n_dropped) == ("mean", None, 0, 0)
    assert [line.fate for line in await queries.list_contributions(closing.db, "web")] == [None, None, None]


async def test_what_a_rule_computed_fits_the_table(closing) -> None:
    """Scores that are no numbers, shares that round past 1 and long reasons must not keep a round from closing."""
    fates = [
        NewFate("a", "kept", 1.0 + 1e-12, math.inf, ""),
        NewFate("b", "kept", None, math.nan, ""),
        NewFate("c", "dropped", -1e-17, -math.inf, "x" * 999),
    ]
    nobody = NewAggregation("krum", "{}", None, [NewFate("nobody", "kept", 1.0, 0.0, "")])
    async with closing.refuses(Exception, "refuses to store"):  # a client that does not exist is our own mistake
        await closing.complete_round(1, NewModel(1, closing.weights, aggregation=nobody), at(60))
    await closing.end(1, aggregation=NewAggregation("krum", "{}", None, fates))
    shown = await queries.list_contributions(closing.db, "web")
    assert [(line.share, line.score) for line in shown] == [(1.0, None), (None, None), (0.0, None)]
    assert len(shown[2].fate_reason or "") == 500


async def test_a_thousand_fates_are_one_statement(stored) -> None:
    """One executemany: a round of a thousand clients waits for the database once."""
    names = [f"client-{i:04d}" for i in range(1000)]
    await stored.join(*names)
    await stored.open(1)
    await stored.send(*names)
    await stored.begin_aggregation(1)
    fates = [NewFate(name, "kept", 0.001, 1.0, "") for name in names]
    model = NewModel(1, stored.weights, aggregation=NewAggregation("multi-krum", "{}", None, fates))
    with statements_of(stored.db) as asked:
        await complete_round(stored.db, "web", stored.epoch, 1, model, at(60))
    assert 3 < len(asked) < 20
    assert await queries.count_fates(stored.db, "web", "client-0999") == {"kept": 1, "clipped": 0, "dropped": 0}


async def test_an_abandoned_round_says_why_in_words(closing) -> None:
    """The event is in the transaction that closes the round."""
    why = NewEvent(at(60), "round_abandoned", "krum needs 5 updates, 3 arrived", round=1)
    for _ in range(2):
        await closing.abandon_round(1, "too_few_for_rule" + "x" * 9999, at(60), noted=[why])
    assert [event.detail for event in await queries.list_events(closing.db, "web", round_number=1)] == [why.detail]
    row = await queries.get_round(closing.db, "web", 1)
    assert (row.aggregation, row.rule) == ("nnm+krum", None)
    assert row.reason == "too_few_for_rule" + "x" * 484


async def test_proposals_are_open_until_the_operator_decides(closing) -> None:
    """One line for each client with its newest evidence; putting it in quarantine or letting it out answers it."""

    async def note(*all_of_it):
        events = [NewEvent(at(60), kind, detail, client_id=client, round=1) for kind, client, detail in all_of_it]
        await closing.commit(Batch(events=events))

    async def proposed():
        return [(row.client_id, row.n, row.detail, row.at) for row in await queries.list_proposals(closing.db, "web")]

    proposal = "quarantine_proposed"
    await note((proposal, "b", "one"), (proposal, "a", "two"), (proposal, "b", "three"), ("client_left", "c", ""))
    assert await proposed() == [("a", 1, "two", at(60)), ("b", 2, "three", at(60))]
    await note(("client_quarantined", "b", "x"), ("quarantine_lifted", "a", ""))
    assert await proposed() == []
    await note(("quarantine_lifted", "b", ""), (proposal, "b", "four"))
    assert await proposed() == [("b", 1, "four", at(60))]
