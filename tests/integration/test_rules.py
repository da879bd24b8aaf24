"""A federation with a rule, each part a process: kill -9 around the close of a round, and quarantine by order."""

import asyncio
from itertools import product

import numpy as np
import pytest
from integration.deployment import DIM, FEDERATION, SQLITE, client_name, died_by_sigkill, on, swept
from integration.oracle import contribute, power_learner
from sqlalchemy import select
from support.message_publisher import publish_once
from support.waiting import PATIENCE_S, until

from foltr.core.failpoints import Failpoint
from foltr.core.methods.base import Memory
from foltr.core.methods.bodies import unpack_body
from foltr.core.methods.registry import make_aggregation
from foltr.core.operator.credentials import OPERATOR_USER
from foltr.core.operator.folder import open_authority
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.topics import Topics
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment
from foltr.federator.closing.stored_rules import round_rng, stored_rule
from foltr.storage.federations import get_federation
from foltr.storage.models import get_model
from foltr.storage.orders import list_orders
from foltr.storage.queries import get_aggregation, list_contributions, list_events, list_quarantined, list_rounds
from foltr.storage.records import RoundRow
from foltr.storage.rounds import stream_updates
from foltr.storage.tables import rounds

N_CLIENTS, N_ROUNDS = 5, 3
# A rule that draws, so that a restart has something to draw again; m = 1 of 3 buckets is within its bounds.
RULE = {"FOLTR_AGGREGATION": "bucketing+median", "FOLTR_BYZANTINE": "1"}
DIES_AT = (
    Failpoint.COLLECTING_STOPPED,
    Failpoint.AGGREGATED,
    Failpoint.IN_ROUND_TRANSACTION,
    Failpoint.ROUND_COMPLETED,
)
USUAL = {("postgresql", Failpoint.AGGREGATED), ("sqlite", Failpoint.IN_ROUND_TRANSACTION)}
OPERATOR_TOPIC = Topics(FEDERATION).operator


async def aggregated_again(database, number):
    """The model of a round and its fates, made here of what is stored."""
    federation = await get_federation(database, FEDERATION)
    row = await stored_round(database, number)
    base = await get_model(database, FEDERATION, row.base_version)
    rng = round_rng(federation.aggregation_seed, number)
    ranker = LinearRankerSpec(n_features=DIM)
    aggregation = make_aggregation(PdgdTraining(), ranker, stored_rule(row), n_expected=row.n_updates, rng=rng)
    async for update in stream_updates(database, FEDERATION, number):
        body = unpack_body(update.encoding, update.body, DIM)
        aggregation.add(body, update.n_interactions, 1.0, update.client_id)
    made = aggregation.finish(unpack_vector(base.weights), Memory(base.optimizer_state, base.defence_state))
    fates = [(fate.client_id, fate.fate, fate.share, fate.score, fate.reason) for fate in made.report.fates]
    return made.weights.tobytes(), fates


async def stored_round(database, number):
    async with database.reading() as connection:
        found = await connection.execute(select(rounds).where(rounds.c.number == number))
        return RoundRow(*found.one())


@pytest.mark.parametrize(
    ("migrated_url", "failpoint"), swept(product(("sqlite", "postgresql"), DIES_AT), USUAL), indirect=["migrated_url"]
)
async def test_kill_9_around_the_close_repeats_the_round_bit_for_bit(deployment, failpoint):
    """Models, draws, fates and aggregations are those of a federator that never died; each round has them once."""
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(N_ROUNDS, failpoints=f"{failpoint}=kill@2", **RULE)
        await deployment.serves()
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
        assert died_by_sigkill(await deployment.exit_code()), deployment.said()
        deployment.start_federator(N_ROUNDS, **RULE)
        assert await deployment.exit_code() == 0, deployment.said()
    assert [task.result() for task in told] == [N_ROUNDS] * N_CLIENTS
    history = await list_rounds(deployment.database, FEDERATION)
    assert [(row.round, row.state, row.rule) for row in history] == [
        (number, "completed", "bucketing+median") for number in range(1, N_ROUNDS + 1)
    ]
    for row in history:
        weights, fates = await aggregated_again(deployment.database, row.round)
        model = await get_model(deployment.database, FEDERATION, row.model_version)
        assert model.weights == weights, f"round {row.round}"
        lines = await list_contributions(deployment.database, FEDERATION, round_number=row.round)
        assert [(line.client_id, line.fate, line.share, line.score, line.fate_reason) for line in lines] == fates
        made = await get_aggregation(deployment.database, FEDERATION, row.round)
        assert made.n_kept + made.n_clipped + made.n_dropped == N_CLIENTS


@on("postgresql")
async def test_a_quarantine_by_order_holds_across_a_kill_until_it_is_lifted(deployment, tmp_path):
    """The device keeps its clicks, is refused once a round, and contributes them once it is let out."""
    options = ("--min-clients", "1", "--max-clients", "1", "--min-time", "0")
    name, access = client_name(0), deployment.devices[0]
    deployment.start_federator(1_000, *options, max_time_s=1.5)
    await deployment.serves()
    async with EdgeClient(access, store=":memory:", experiment=Experiment(learner=power_learner(0), seed=0)) as client:
        await client.next_round(after=0, timeout_s=PATIENCE_S)

        def click():
            client.record_clicks(client.rank(np.ones((1, DIM), np.float32)), [0])

        def codes():
            return {str(code): n for code, n in client.receipts.items()}

        click()
        await until(lambda: client.n_updates_counted == 1, "the first update was not counted")
        with open_authority(tmp_path / "operator") as authority:
            quarantine, lift = authority.quarantine(name, "it flips signs"), authority.lift_quarantine(name)
            broker = authority.operator.broker
        await asyncio.to_thread(publish_once, broker, OPERATOR_USER, OPERATOR_TOPIC, quarantine.payload)

        async def quarantined():
            return [row.client_id for row in await list_quarantined(deployment.database, FEDERATION)]

        async def is_quarantined():
            return await quarantined() == [name]

        await until(is_quarantined, "the order was not obeyed")
        deployment.federator.kill()
        deployment.federator.wait(PATIENCE_S)
        deployment.start_federator(1_000, *options, max_time_s=1.5)
        click()
        await until(lambda: "quarantined" in codes(), "the update was not refused")
        assert client.n_updates_counted == 1
        # The restarted federator knows the order: recorded, and sent again after the lift, it does nothing.
        for order in (lift, quarantine):
            await asyncio.to_thread(publish_once, broker, OPERATOR_USER, OPERATOR_TOPIC, order.payload)

        await until(lambda: client.n_updates_counted == 2, "what it was refused with was not counted later")
    assert await quarantined() == []
    rows = await list_orders(deployment.database, FEDERATION)
    assert [(row.number, row.kind, row.outcome) for row in rows] == [
        (1, "quarantine_client", "obeyed"),
        (2, "lift_quarantine", "obeyed"),
    ]
    quarantines = await list_events(deployment.database, FEDERATION, kind="client_quarantined")
    assert len(quarantines) == 1


@SQLITE
async def test_a_wider_rule_than_the_quorum_falls_back_and_says_so(deployment):
    """Five devices, and a rule that needs seven where a round may have ten: each round's row has the reason."""
    options = ("--aggregation", "krum", "--max-clients", "10")
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(N_ROUNDS, *options, FOLTR_BYZANTINE="2")
        await deployment.serves()
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
        assert await deployment.exit_code() == 0, deployment.said()
    assert [task.result() for task in told] == [N_ROUNDS] * N_CLIENTS
    for row in await list_rounds(deployment.database, FEDERATION):
        assert (row.aggregation, row.rule) == ("krum", "median")
        assert "krum needs at least 2m + 3 = 7" in row.fallback_reason
    assert "a round of 5 to 6 updates is aggregated by median" in deployment.said()
