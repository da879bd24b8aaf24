"""Devices that can click tell that a model was ruined, and it is taken back: over Mosquitto, and through kills."""

import itertools
from itertools import product

import numpy as np
import pytest
from integration.deployment import DIM, FEDERATION, Deployment, died_by_sigkill, swept
from integration.users import Plot, click_best, in_each_round, in_use
from sqlalchemy import select
from support.waiting import PATIENCE_S, until

from foltr.core.failpoints import Failpoint
from foltr.core.protocol.fields import unpack_vector
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.storage.database import Database
from foltr.storage.models import get_model, list_models
from foltr.storage.queries import list_events, list_rounds
from foltr.storage.records import ModelRow
from foltr.storage.tables import updates

N_CLIENTS, N_ATTACKERS, N_DOCUMENTS = 5, 2, 10
LISTS_A_ROUND = 4
OPTIONS = ("--aggregation", "mean", "--interactions", str(LISTS_A_ROUND))
SAMPLING = {"FOLTR_EXPLORATION": "sampling"}
DIES_AT = (Failpoint.IN_RESTORATION_TRANSACTION, Failpoint.MODEL_ROLLED_BACK)


async def use(client: EdgeClient, i: int) -> None:
    """A user who likes documents of whom the first feature is large, a few lists a round."""
    rng = np.random.default_rng(i)

    def act() -> None:
        for _ in range(LISTS_A_ROUND):
            click_best(client, rng.normal(size=(N_DOCUMENTS, DIM)).astype(np.float32))

    await in_each_round(client, act)


def devices_of(deployment: Deployment, plot: Plot):
    """All devices, with users."""
    devices = (
        EdgeClient(one, store=":memory:", experiment=Experiment(learner=plot.learner(i, 0.5), seed=i))
        for i, one in enumerate(deployment.devices)
    )
    return in_use(devices, use)


async def restored(database: Database) -> ModelRow | None:
    """The first model that was restored while the anchor was a good one."""
    models = await list_models(database, FEDERATION, limit=10_000)
    return next((row for row in models if row.restored_version), None)


async def anchor_moved(database: Database) -> bool:
    return bool(await list_events(database, FEDERATION, kind="anchor_moved"))


@pytest.mark.parametrize(
    ("migrated_url", "dies_at"),
    swept(
        product(("sqlite", "postgresql"), [None, *DIES_AT]), list(zip(("postgresql", "sqlite"), DIES_AT, strict=True))
    ),
    indirect=["migrated_url"],
)
async def test_a_ruined_model_is_taken_back(deployment, dies_at):
    """Two of five ruin the mean, and the three others' votes bring the anchor back; every update counts once."""
    plot = Plot(N_ATTACKERS)
    database = deployment.database
    failpoints = "" if dies_at is None else f"{dies_at}=kill"
    deployment.start_federator(10_000, *OPTIONS, failpoints=failpoints, **SAMPLING)
    async with devices_of(deployment, plot) as clients:
        await until(lambda: anchor_moved(database), f"the anchor does not move: {deployment.said()}")
        plot.attacks = True
        if dies_at is not None:
            assert died_by_sigkill(await deployment.exit_code()), deployment.said()
            deployment.start_federator(10_000, *OPTIONS, **SAMPLING)
        await until(lambda: _is_restored(database), f"nothing is taken back: {deployment.said()}")
        plot.attacks = False
        found = await restored(database)
        await until(lambda: _learns_on(database, found), "no round follows")
        for client in clients:
            await client.wait_settled(PATIENCE_S)
    anchor = await get_model(database, FEDERATION, found.restored_version)
    assert (found.weights, found.base_version) == (anchor.weights, anchor.version)
    assert unpack_vector(found.weights)[0] > 0.0, "the anchor ranks as users like"
    ruined = await get_model(database, FEDERATION, found.version - 1)
    assert unpack_vector(ruined.weights)[0] < 0.0
    ended = [row for row in await list_rounds(database, FEDERATION, limit=10_000) if row.reason is not None]
    assert {row.reason for row in ended} == {"model_rolled_back"}
    assert all(2 * row.n_worse > row.n_updates - row.n_none - row.n_better for row in ended)
    await _check_counts(database)
    await _check_replays(database)


async def _is_restored(database: Database) -> bool:
    return await restored(database) is not None


async def _learns_on(database: Database, found: ModelRow) -> bool:
    models = await list_models(database, FEDERATION, limit=10_000)
    return any(row.base_version == found.version for row in models)


async def _check_counts(database: Database) -> None:
    """Of each device the updates that count cover its interactions without a gap, and none of them twice."""
    covers = select(updates.c.client, updates.c.covers_after, updates.c.covers_through, updates.c.n_interactions)
    async with database.reading() as connection:
        counting = covers.where(updates.c.covers_after.is_not(None)).order_by(updates.c.client, updates.c.covers_after)
        rows = (await connection.execute(counting)).all()
    for _, of_client in itertools.groupby(rows, key=lambda row: row.client):
        through = 0
        for row in of_client:
            assert (row.covers_after, row.n_interactions) == (through, row.covers_through - row.covers_after)
            through = row.covers_through


async def _check_replays(database: Database) -> None:
    """The rounds before and after come to their models once more."""
    recipes = await load_recipes(database, FEDERATION)
    models = await list_models(database, FEDERATION, limit=10_000)
    for model in models[-2:]:
        if model.round is not None:
            assert (await replay_round(database, recipes, model.round)).differs == ()
