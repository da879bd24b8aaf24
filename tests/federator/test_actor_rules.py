"""The single writer under a rule: what it stores of each update, when the rule cannot be used, and after a kill."""

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.deaths import dying_at
from support.federator_without_network import TOPICS
from support.waiting import PATIENCE_S, until

from foltr.broker.link import InboundMessage
from foltr.core.aggregation.client_records import ClientRecords
from foltr.core.aggregation.fates import Fate
from foltr.core.aggregation.round_report import ClientFate, Finding, RoundReport
from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.failpoints import Failpoint
from foltr.core.methods.base import Memory, NextModel
from foltr.core.methods.registry import make_aggregation
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.orders import LiftQuarantine, QuarantineClient, SetDeadline
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining
from foltr.core.protocol.updates import DenseDelta
from foltr.federator.closing.stored_rules import round_rng
from foltr.federator.round import RoundPolicy
from foltr.storage.federations import get_federation
from foltr.storage.models import list_models
from foltr.storage.queries import (
    get_aggregation,
    get_round,
    list_contributions,
    list_events,
    list_quarantined,
    list_rounds,
)

N_FEATURES = 4
FIVE = RoundPolicy(2, 5, 0.0, 60.0)
MEDIAN = replace(FIVE, rule=read_rule("median"))
KRUM = replace(FIVE, rule=read_rule("krum", byzantine=1))
NAMES = ("alice", "bob", "carol", "dave", "erin")
# What the five send: four nearly alike, and one far away.
VALUES = (1.0, 1.25, 0.75, 1.0, -100.0)


@pytest.fixture
async def joined(serve, unsigned):
    """Starts an actor with a policy and has five devices join."""

    async def start(policy, **plan):
        served = await serve(policy, n_features=N_FEATURES, **plan)
        devices = [unsigned(name) for name in NAMES]
        await served.join(devices)
        return served, devices

    return start


def _body(value):
    return DenseDelta(dim=N_FEATURES, values=pack_vector(np.full(N_FEATURES, value)))


def send(served, devices, number=1, base=0, values=VALUES):
    """The devices' updates of a round, the last one first: the order of arrival must not matter."""
    for device, value in reversed(list(zip(devices, values, strict=False))):
        served.update(device, number, base, body=_body(value))


async def weights_of(served, version):
    rows = {row.version: row for row in await list_models(served.db, "mail")}
    return unpack_vector(rows[version].weights).tolist()


async def test_a_round_tells_its_rule_and_what_became_of_each_update(joined):
    """Krum takes one update whole and drops the rest, each with its score and a reason."""
    served, devices = await joined(KRUM)
    send(served, devices)
    await served.turn()
    assert await weights_of(served, 1) == [1.0] * N_FEATURES
    row = await get_round(served.db, "mail", 1)
    assert (row.aggregation, row.byzantine, row.rule, row.fallback_reason) == ("krum", 1.0, "krum", None)
    assert (row.n_updates, row.n_dropped) == (5, 4)
    made = await get_aggregation(served.db, "mail", 1)
    assert (made.n_kept, made.n_clipped, made.n_dropped) == (1, 0, 4)
    lines = await list_contributions(served.db, "mail", round_number=1)
    assert [line.fate for line in lines] == ["kept", "dropped", "dropped", "dropped", "dropped"]
    assert (lines[0].share, lines[0].fate_reason) == (1.0, "")
    assert all(line.fate_reason for line in lines[1:])
    assert max(lines, key=lambda line: line.score).client_id == "erin"


async def test_a_fallback_may_be_no_model_at_all(joined):
    """The round is abandoned with a reason, and an event says it in words; the next one goes on from the same model."""
    served, devices = await joined(replace(FIVE, rule=read_rule("krum", byzantine=1, fallback="abandon")))
    send(served, devices[:3])
    await served.turn()
    first, second = await list_rounds(served.db, "mail")
    assert (first.state, first.reason, first.rule) == ("abandoned", "too_few_for_rule", None)
    assert (second.state, second.base_version) == ("collecting", 0)
    (event,) = await list_events(served.db, "mail", kind="round_abandoned")
    assert (event.round, "krum needs at least" in event.detail) == (1, True)
    send(served, devices, 2, 0)
    await served.turn()
    assert await weights_of(served, 1) == [1.0] * N_FEATURES


def expected(rule, seed):
    """The model and the fates of the first round, by the same parts outside the federator."""
    ranker = LinearRankerSpec(n_features=N_FEATURES)
    aggregation = make_aggregation(PdgdTraining(), ranker, rule, n_expected=5, rng=round_rng(seed, 1))
    for name, value in zip(NAMES, VALUES, strict=True):
        aggregation.add(_body(value), 1, 1.0, name)
    made = aggregation.finish(np.zeros(N_FEATURES, np.float32))
    fates = [(fate.client_id, fate.fate, fate.share, fate.score, fate.reason) for fate in made.report.fates]
    return made.weights.tolist(), fates


@pytest.mark.parametrize(
    "at",
    [
        Failpoint.BATCH_COMMITTED,
        Failpoint.COLLECTING_STOPPED,
        Failpoint.AGGREGATED,
        Failpoint.IN_ROUND_TRANSACTION,
        Failpoint.ROUND_COMPLETED,
    ],
)
async def test_a_kill_around_the_close_of_a_round_repeats_it_bit_for_bit(joined, serve, at):
    """Also the draw of buckets: a restarted federator puts the same clients together."""
    rule = read_rule("bucketing+trimmed-mean", byzantine=1, parameters={"bucket_size": 2, "beyond_bounds": True})
    policy = replace(FIVE, rule=rule)
    served, devices = await joined(policy)
    send(served, devices)
    with dying_at(at, "federator.batch_writer", "federator.rounds", "storage.rounds"):
        await served.turn()
    again = await serve(policy, n_features=N_FEATURES)
    await again.turn()
    weights, fates = expected(rule, (await get_federation(again.db, "mail")).aggregation_seed)
    assert await weights_of(again, 1) == weights
    lines = await list_contributions(again.db, "mail")
    assert [(line.client_id, line.fate, line.share, line.score, line.fate_reason) for line in lines] == fates
    assert [row.state for row in await list_rounds(again.db, "mail")] == ["completed", "collecting"]


class Watchful:
    """An aggregation that counts its rounds in its memory and reports what it is told to."""

    def __init__(self):
        self.goes_on, self.threads, self.memories = threading.Event(), [], []
        self.goes_on.set()
        self.findings = (
            Finding("defence_raised", None, "4 of 5 updates point away from the last step"),
            Finding("quarantine_proposed", "erin", "farthest in 9 of 10 rounds"),
        )

    def __call__(self, *_arguments, **_options):
        self._names = []
        return self

    def add(self, _body, _n_interactions, _staleness_weight=1.0, client_id=""):
        self._names.append(client_id)

    def finish(self, base, memory):
        self.threads.append(threading.current_thread())
        assert self.goes_on.wait(PATIENCE_S)
        self.memories.append(memory)
        fates = tuple(ClientFate(name, Fate.KEPT, 0.2, 1.0, "") for name in self._names)
        report = RoundReport("adaptive", "median", {"n": 5.0, "c": np.inf}, None, fates, self.findings)
        records = ClientRecords.from_bytes(memory.defence, N_FEATURES)
        own = records.for_clients(tuple(self._names))
        after = records.after(tuple(self._names), own, records.progress, undecided=False)
        return NextModel(base + np.float32(1), Memory(memory.optimiser, after.to_bytes()), report)


@pytest.fixture
def watchful(monkeypatch):
    made = Watchful()
    monkeypatch.setattr("foltr.federator.closing.collected_updates.make_aggregation", made)
    return made


@pytest.mark.usefixtures("watchful")
async def test_what_a_rule_finds_out_is_stored_with_the_round(joined):
    """As events with the evidence; nobody is put in quarantine by them."""
    served, devices = await joined(MEDIAN)
    send(served, devices)
    await served.turn()
    raised, proposed = [
        (await list_events(served.db, "mail", kind=kind))[0] for kind in ("defence_raised", "quarantine_proposed")
    ]
    assert (raised.client_id, raised.round, raised.detail) == (None, 1, "4 of 5 updates point away from the last step")
    assert (proposed.client_id, proposed.round, proposed.detail) == ("erin", 1, "farthest in 9 of 10 rounds")
    assert (await get_aggregation(served.db, "mail", 1)).parameters == '{"n": 5.0, "c": null}'
    assert await list_quarantined(served.db, "mail") == []
    send(served, devices, 2, 1)
    await served.turn()
    assert served.receipts.codes()["accepted"] == 10


async def test_a_rule_that_takes_long_does_not_hold_up_the_network(joined, watchful):
    """It computes in a thread of its own, while the event loop goes on."""
    watchful.goes_on.clear()
    served, devices = await joined(MEDIAN)
    send(served, devices)
    turn = asyncio.create_task(served.turn())
    await until(lambda: bool(watchful.threads))
    assert not turn.done()
    watchful.goes_on.set()
    await turn
    assert watchful.threads[0] is not threading.main_thread()


async def test_what_became_of_an_order_is_logged(serve, operator):
    """Obeyed or refused, with why and the code; one that changes nothing is silent, and only debug lines have names."""
    served = await serve(FIVE, n_features=N_FEATURES, enrolment_key=operator.key.public)
    await served.join([operator.enrol("erin")])
    quarantine = QuarantineClient(federation="mail", client_id="erin", reason="it flips signs")
    stranger = LiftQuarantine(federation="mail", client_id="nobody")
    orders = [quarantine, quarantine, stranger, LiftQuarantine(federation="mail", client_id="erin")]
    with capture_logs() as lines:
        for sequence, order in enumerate([*orders, SetDeadline(federation="mail", round=1, max_time_s=90.0)], 1):
            payload = operator.says(order, sequence).payload
            served.actor.receive(InboundMessage(TOPICS.operator, payload, retained=False))
            await served.turn()
    said = [line for line in lines if line["log_level"] != "debug"]
    assert [(line["event"], line["log_level"], line["detail"]) for line in said] == [
        ("client_quarantined", "info", "it flips signs"),
        ("order_refused", "warning", "no client of this name has ever joined"),
        ("quarantine_lifted", "info", ""),
        ("deadline_set", "info", "90 s after the opening"),
    ]
    assert said[1]["code"] == "unknown_client"
    assert not [line for line in said if "client_id" in line]
    named = [(line["event"], line["client_id"]) for line in lines if line["log_level"] == "debug"]
    assert named == [("client_quarantined", "erin"), ("quarantine_lifted", "erin")]
