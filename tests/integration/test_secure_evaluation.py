"""How well a ranker does is seen in secure sums, and nobody's part in it: over Mosquitto, with two helpers."""

import numpy as np
import pytest
from integration.deployment import SQLITE
from integration.users import click_best, in_each_round, in_use
from integration.whole import ANY_POLICY, DIM, N_DEVICES, SCHEMA, running
from support.secure_cohorts import FEDERATION
from support.waiting import until

from foltr.core.protocol.explorations import SamplingExploration
from foltr.core.protocol.policies import GaussianNoise, SecureEvaluation, SecureVotes
from foltr.core.protocol.states import RoundState
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.storage.queries import list_events, list_rounds
from foltr.storage.tables import updates

N_DOCUMENTS, LISTS_A_ROUND = 10, 4
TRAINING = PdgdTraining(
    min_interactions=LISTS_A_ROUND, max_interactions=LISTS_A_ROUND, exploration=SamplingExploration()
)
POLICY = {
    "votes": SecureVotes(weight=64),
    "evaluation": SecureEvaluation(weight=32),
    "n_interactions": LISTS_A_ROUND,
    "max_participations": 1000,
    "noise": GaussianNoise(variance=100),
}


def learn(weights, _interaction, _training):
    """What a device learns from any list: a step towards the first feature."""
    stepped = weights.copy()
    stepped[0] += 3.0
    return stepped


async def use(client: EdgeClient, i: int) -> None:
    """A user who clicks on the one document of whom the first feature is largest, which the base order has last."""
    rng = np.random.default_rng(i)

    def act() -> None:
        for _ in range(LISTS_A_ROUND):
            features = rng.uniform(0.0, 0.5, (N_DOCUMENTS, DIM)).astype(np.float32)
            click_best(client, features, base=-features[:, 0])

    await in_each_round(client, act)


def devices(whole):
    """All of them; the last says nothing of its user's lists."""
    return (
        EdgeClient(
            whole.credentials(i),
            store=":memory:",
            schema=SCHEMA,
            experiment=Experiment(learner=learn, seed=i),
            privacy=Privacy(privacy_limits=ANY_POLICY, evaluation=i < N_DEVICES - 1),
        )
        for i in range(N_DEVICES)
    )


async def rounds_of(database):
    return await list_rounds(database, FEDERATION, limit=10_000)


@pytest.mark.nightly
@SQLITE
async def test_rounds_of_secure_sums_tell_how_well_a_ranker_does(mosquitto_server, database, tmp_path) -> None:
    """It comes to put first what users click; neither broker nor database holds what one device has said."""
    settings = {"anchor": True, "evaluation": True, "training": TRAINING, "first_weights": None}
    async with running(tmp_path, mosquitto_server.url, proofs=True, **POLICY) as whole:
        for name in ("north", "south"):
            whole.start_helper(name)
        async with whole.federator(database, 10_000, settings), in_use(devices(whole), use):

            async def has_learned() -> bool:
                told = [row.reward for row in await rounds_of(database) if row.n_evaluations]
                return len(told) >= 8 and sum(told[-4:]) > sum(told[:4]) + 1.0

            await until(has_learned, "rewards do not rise")
    made = [row for row in await rounds_of(database) if row.state is RoundState.COMPLETED]
    assert {row.n_evaluations for row in made} == {N_DEVICES}, "who says nothing counts as one without clicks"
    deviation = np.sqrt(2 * 100) / 32 / N_DEVICES
    assert made[0].evaluation_deviation == pytest.approx(deviation)
    error = 5 * deviation / np.sqrt(len(made))
    assert np.mean([row.clicked for row in made]) == pytest.approx(1 - 1 / N_DEVICES, abs=error)
    # The last of ten in the base order, whatever was shown, of all who say so.
    rounding = 5 * np.sqrt(0.1 * 0.9 / N_DEVICES / len(made))
    base_reward = np.mean([row.base_reward for row in made])
    assert base_reward == pytest.approx(0.1 * (1 - 1 / N_DEVICES), abs=error + rounding)
    assert not [event for event in await list_events(database, FEDERATION) if event.kind == "ticket_refused"]
    async with database.reading() as connection:
        said = await connection.execute(
            updates.select().with_only_columns(updates.c.clicked, updates.c.reward, updates.c.base_reward)
        )
        assert set(said.all()) == {(None, None, None)}
    recipes = await load_recipes(database, FEDERATION)
    for row in (made[0], made[-1]):
        assert (await replay_round(database, recipes, row.round)).differs == ()
