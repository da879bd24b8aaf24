"""What some users find under a policy a new user starts from: over Mosquitto, with two helpers and their noise."""

import numpy as np
from integration.deployment import SQLITE
from integration.users import click_best, in_each_round, in_use
from integration.whole import ANY_POLICY, DIM, N_DEVICES, SCHEMA, running
from support.secure_cohorts import FEDERATION
from support.waiting import PATIENCE_S, until

from foltr.core.learning.credits import OPENS_AT, Credits, summed
from foltr.core.learning.gate import Source
from foltr.core.protocol.policies import GaussianNoise, SecureEvaluation
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy
from foltr.storage.evaluations import list_credit_sums
from foltr.storage.tables import updates

N_DOCUMENTS, LISTS_A_ROUND, N_BASE_LISTS = 4, 40, 60
TRAINING = PdgdTraining(min_interactions=LISTS_A_ROUND, max_interactions=LISTS_A_ROUND)
POLICY = {
    "evaluation": SecureEvaluation(weight=32, credit_weight=64),
    "n_interactions": LISTS_A_ROUND,
    "max_participations": 1000,
    "noise": GaussianNoise(variance=400),
}


def learn(weights, _interaction, _training):
    """What a device learns from any list: a step towards the first feature."""
    stepped = weights.copy()
    stepped[0] += 1.0
    return stepped


def device(whole, i: int, *, evaluation: bool = True) -> EdgeClient:
    privacy = Privacy(privacy_limits=ANY_POLICY, evaluation=evaluation)
    experiment = Experiment(learner=learn, seed=i)
    return EdgeClient(whole.credentials(i), store=":memory:", schema=SCHEMA, experiment=experiment, privacy=privacy)


def search(client: EdgeClient, rng: np.random.Generator, **options: str) -> None:
    """Click on the document of whom the first feature is largest, which the application has last."""
    features = rng.uniform(0.0, 0.5, (N_DOCUMENTS, DIM)).astype(np.float32)
    click_best(client, features, base=-features[:, 0], **options)


async def use(client: EdgeClient, i: int) -> None:
    rng = np.random.default_rng(i)

    def act() -> None:
        for _ in range(LISTS_A_ROUND):
            search(client, rng)

    await in_each_round(client, act)


@SQLITE
async def test_a_new_users_gate_opens_by_what_secure_sums_say(mosquitto_server, database, tmp_path) -> None:
    """It has clicked on nothing but the application's lists; another, that says and hears nothing, waits."""
    async with running(tmp_path, mosquitto_server.url, proofs=True, **POLICY) as whole:
        for name in ("north", "south"):
            whole.start_helper(name)

        async def is_known() -> bool:
            return summed(await list_credit_sums(database, FEDERATION, 0)).growth >= OPENS_AT

        async with whole.federator(database, 10_000, evaluation=True, training=TRAINING):
            async with in_use([device(whole, i) for i in range(N_DEVICES)], use):
                await until(is_known, "the first users' lists do not favour the model")
            opened = {}
            for i, evaluation in ((N_DEVICES, True), (N_DEVICES + 1, False)):
                async with device(whole, i, evaluation=evaluation) as client:
                    await client.next_round(timeout_s=PATIENCE_S)
                    if evaluation:
                        await until(lambda client=client: client.gate.shared.growth >= OPENS_AT)
                    rng = np.random.default_rng(9)
                    for _ in range(N_BASE_LISTS):
                        search(client, rng, exploration="none")
                    gate = client.gate
                    opened[evaluation] = gate.is_open
                    assert (gate.growth, gate.shared == Credits()) == (1.0, not evaluation)
                    assert gate.count(Source.BASE).lists >= 40
        assert opened == {True: True, False: False}
        async with database.reading() as connection:
            said = await connection.execute(updates.select().with_only_columns(updates.c.credit_total))
            assert set(said.scalars()) == {None}, "nobody's own credits are stored"
