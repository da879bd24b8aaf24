"""A model that a minority ruined within its norm proofs is taken back by votes that nobody saw: over Mosquitto."""

import numpy as np
from integration.deployment import SQLITE
from integration.users import Plot, click_best, in_each_round, in_use
from integration.whole import ANY_POLICY, DIM, N_DEVICES, SCHEMA, running
from support.secure_cohorts import FEDERATION
from support.waiting import until

from foltr.core.protocol.explorations import SamplingExploration
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.policies import GaussianNoise, SecureVotes
from foltr.core.protocol.states import RoundState
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.storage.database import Database
from foltr.storage.models import get_model, list_models
from foltr.storage.queries import list_events, list_rounds
from foltr.storage.records import ModelRow
from foltr.storage.tables import updates

N_ATTACKERS, N_DOCUMENTS, LISTS_A_ROUND = 2, 10, 4
TRAINING = PdgdTraining(
    min_interactions=LISTS_A_ROUND, max_interactions=LISTS_A_ROUND, exploration=SamplingExploration()
)


async def use(client: EdgeClient, i: int) -> None:
    """A user who likes documents of whom the first feature is large, a few lists a round."""
    rng = np.random.default_rng(i)

    def act() -> None:
        for _ in range(LISTS_A_ROUND):
            click_best(client, rng.uniform(0.0, 0.5, (N_DOCUMENTS, DIM)).astype(np.float32))

    await in_each_round(client, act)


def used(whole, plot: Plot):
    """All devices, with users."""
    devices = (
        EdgeClient(
            whole.credentials(i),
            store=":memory:",
            schema=SCHEMA,
            experiment=Experiment(learner=plot.learner(i, 0.1), seed=i),
            privacy=Privacy(privacy_limits=ANY_POLICY),
        )
        for i in range(N_DEVICES)
    )
    return in_use(devices, use)


async def restored(database: Database) -> ModelRow | None:
    models = await list_models(database, FEDERATION, limit=10_000)
    return next((row for row in models if row.restored_version), None)


async def rounds_of(database: Database):
    return await list_rounds(database, FEDERATION, limit=10_000)


@SQLITE
async def test_a_ruined_model_is_taken_back_by_votes_in_secure_sums(mosquitto_server, database, tmp_path) -> None:
    """Of five devices and two helpers; the broker and the database hold no single vote, and rounds replay."""
    plot = Plot(N_ATTACKERS)
    # What is learned in a round is a few steps of 0.01, so that two of five, whose vectors are shortened, ruin it.
    votes = {"votes": SecureVotes(weight=64), "n_interactions": LISTS_A_ROUND}
    votes |= {"max_participations": 1000, "noise": GaussianNoise(variance=100)}
    settings = {"anchor": True, "training": TRAINING, "first_weights": None}
    async with running(tmp_path, mosquitto_server.url, proofs=True, **votes) as whole:
        for name in ("north", "south"):
            whole.start_helper(name)
        async with whole.federator(database, 10_000, settings), used(whole, plot):

            async def has_moved() -> bool:
                return bool(await list_events(database, FEDERATION, kind="anchor_moved"))

            async def is_restored() -> bool:
                return await restored(database) is not None

            async def learns_on() -> bool:
                newest = (await rounds_of(database))[-1]
                return newest.base_version > found.version

            await until(has_moved, "the anchor does not move")
            plot.attacks = True
            await until(is_restored, "nothing is taken back")
            plot.attacks = False
            found = await restored(database)
            await until(learns_on, "no round follows")
    anchor = await get_model(database, FEDERATION, found.restored_version)
    assert (found.weights, found.base_version) == (anchor.weights, anchor.version)
    assert unpack_vector(anchor.weights)[0] > 0.0, "the anchor ranks as users like"
    rows = await rounds_of(database)
    assert "model_rolled_back" in {row.reason for row in rows}
    before = [row for row in rows if row.model_version and row.model_version < found.version][-4:]
    assert sum(row.tally_worse for row in before) > sum(row.tally_n_updates for row in before) / 2 - N_DEVICES
    assert all(row.n_worse + row.n_none + row.n_better == 0 for row in rows), "no vote is beside an update"
    async with database.reading() as connection:
        assert set(await connection.scalars(updates.select().with_only_columns(updates.c.vote))) == {None}
    recipes = await load_recipes(database, FEDERATION)
    made = [row.round for row in rows if row.state is RoundState.COMPLETED]
    for number in (made[0], made[len(made) // 2], made[-1]):
        assert (await replay_round(database, recipes, number)).differs == ()
