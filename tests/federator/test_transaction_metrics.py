"""What is measured and traced of a federator: what its real store has made, and nothing that was not stored."""

from datetime import UTC, datetime

import pytest
from support.databases import open_migrated
from support.federator_without_network import GENEROUS, Served

from foltr.core.aggregation.vote_result import RoundEvaluation
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.membership import Forget, Leave
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.measures import FederatorMeasures
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.service import read_actor
from foltr.federator.transaction_metrics import TransactionMetrics
from foltr.storage.errors import WriterFencedError
from foltr.storage.federations import claim_federation
from foltr.storage.records import Batch, NewModel, NewUpdate

TWO = RoundPolicy(min_clients=2, max_clients=2, max_time_s=60)
THREE = RoundPolicy(min_clients=3, max_clients=3, max_time_s=60)
NAMES = ("anna", "bert", "carl")


@pytest.fixture
async def begin(served_url):
    """Starts a federator that is watched, with the number of the round that it ends with."""
    started = []
    async with await open_migrated(served_url) as db:

        async def start(policy=TWO, **options):
            measures = FederatorMeasures("mail")
            watch = TransactionMetrics(measures)
            served = Served(db, FederationPlan("mail", 1, policy, **options), GENEROUS, watch=watch)
            started.append(served)
            await served.actor.start()
            return served, measures

        yield start
        for served in started:
            await served.actor.close()


async def test_what_was_stored_is_counted(begin, unsigned):
    """Two rounds with a model and one without; who joined, left, and was refused."""
    served, measures = await begin()
    await served.join(map(unsigned, NAMES))
    for number in (1, 2):
        for name in NAMES[:2]:
            served.update(unsigned(name), number, number - 1)
        await served.turn()
    served.update(unsigned("nobody"), 3, 2)
    served.receive(unsigned("carl"), ClientTopic.LEAVE, Leave(federation="mail", client_id="carl"))
    served.clock.at += 61
    await served.turn()
    assert measures.rounds.counts == {"completed": 2, "abandoned": 1, "other": 0}
    assert measures.abandoned.counts["no_updates"] == 1
    assert measures.updates.counts[""] == 4
    assert measures.refused.counts["unknown_client"] == 1
    assert (measures.events.counts["client_joined"], measures.events.counts["client_left"]) == (3, 1)
    assert measures.round_took.buckets()[-1] == ("+Inf", 2)
    assert measures.closing_took.buckets()[-1] == ("+Inf", 2)
    assert measures.transaction_took.buckets("complete_round")[-1] == ("+Inf", 2)


async def test_what_is_so_now_is_read_of_the_actor(begin, unsigned):
    """The open round, and who is there."""
    served, measures = await begin()
    await served.join(map(unsigned, NAMES))
    served.update(unsigned("anna"))
    await served.turn()
    served.clock.at += 61
    read_actor(measures, served.actor, served.clock)
    assert measures.clients.now == {"member": 3, "online": 3, "quarantined": 0}
    assert (measures.round_number.now[""], measures.round_updates.now[""], measures.round_quorum.now[""]) == (1, 1, 2)
    assert measures.round_state.now["collecting"] == 1
    assert measures.round_overdue.now[""] == pytest.approx(1.0)


def evaluation(reward):
    return Evaluation(clicked=1.0, reward=reward, base_reward=0.25)


async def test_what_a_round_has_earned_is_shown_when_it_ends(begin, unsigned):
    """Of the updates that count in it: not of one that was withdrawn, nor of those of a round without a model."""
    served, measures = await begin(policy=THREE, evaluation=True)
    names = (*NAMES, "dora")
    await served.join(map(unsigned, names))
    assert measures.reward.now == {"shown": None, "base": None}
    for name, reward in zip(names, (0.5, 1.0, 0.0, 0.25), strict=True):
        served.update(unsigned(name), evaluation=evaluation(reward))
        await served.turn()
        if name == "bert":
            served.receive(unsigned("bert"), ClientTopic.FORGET, Forget(federation="mail", client_id="bert"))
            await served.turn()
    assert measures.rounds.counts["completed"] == 1
    assert measures.reward.now == {"shown": 0.25, "base": 0.25}
    served.update(unsigned("anna"), 2, 1, evaluation=evaluation(1.0))
    served.clock.at += 61
    await served.turn()
    assert measures.rounds.counts["abandoned"] == 1
    assert measures.reward.now == {"shown": 0.25, "base": 0.25}


async def test_what_another_process_was_told_is_not_guessed_at(begin, unsigned):
    """A round that was resumed with updates in it shows nothing; the next one does."""
    first, _ = await begin(evaluation=True)
    await first.join(map(unsigned, NAMES))
    first.update(unsigned("anna"), evaluation=evaluation(1.0))
    await first.turn()
    await first.actor.close()
    served, measures = await begin(evaluation=True)
    served.update(unsigned("bert"), evaluation=evaluation(0.5))
    await served.turn()
    assert measures.rounds.counts["completed"] == 1
    assert measures.reward.now == {"shown": None, "base": None}
    for name in NAMES[:2]:
        served.update(unsigned(name), 2, 1, evaluation=evaluation(0.5))
    await served.turn()
    assert measures.reward.now == {"shown": 0.5, "base": 0.25}


def test_who_is_withdrawn_has_earned_nothing():
    """Whoever is quarantined or revoked while the round is open."""
    measures = FederatorMeasures("mail")
    watch, now = TransactionMetrics(measures), datetime.now(UTC)
    updates = [
        NewUpdate(1, name, name, 0, 0, 1, 1, "float32", b"", now, evaluation=evaluation(reward))
        for name, reward in zip(NAMES, (0.5, 1.0, 0.75), strict=True)
    ]
    watch.record("commit_batch", 0.0, (Batch(updates=updates),), None)
    watch.record("commit_batch", 0.0, (Batch(withdrawn=[(1, "bert")]),), None)
    watch.record("complete_round", 0.0, (1, NewModel(1, b""), now, None), None)
    assert measures.reward.now == {"shown": 0.625, "base": 0.25}


def test_what_secure_sums_have_earned_is_shown():
    """As it comes, noise and all."""
    measures = FederatorMeasures("mail")
    model = NewModel(1, b"", evaluation=RoundEvaluation(4, 3.0, -1.0, 2.0, 1.5))
    TransactionMetrics(measures).record("complete_round", 0.0, (1, model, datetime.now(UTC), None), None)
    assert measures.reward.now == {"shown": -0.25, "base": 0.5}


async def test_what_the_database_did_not_make_is_no_event(begin, unsigned):
    """Another federator has claimed the federation: nothing is counted but that it failed."""
    served, measures = await begin()
    before = measures.events.counts["client_joined"]
    await claim_federation(served.db, "mail", 2_000.0)
    with pytest.raises(WriterFencedError):
        await served.join([unsigned("anna")])
    assert measures.events.counts["client_joined"] == before
    assert measures.transactions_failed.counts[""] == 1
