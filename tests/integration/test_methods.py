"""Federations of other methods than FPDGD: what is stored of them, and that killing the federator changes nothing."""

import asyncio

import numpy as np
from integration.deployment import DIM, died_by_sigkill, on
from integration.deployment import FEDERATION as DEPLOYED
from support.prepared_processes import with_defaults
from support.waiting import PATIENCE_S

from foltr.core.failpoints import Failpoint
from foltr.core.methods.base import Memory
from foltr.core.methods.bodies import unpack_body
from foltr.core.methods.registry import make_aggregation, ranker_for, training_for
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Ranking
from foltr.storage.federations import get_federation
from foltr.storage.models import list_models
from foltr.storage.queries import list_rounds
from foltr.storage.rounds import stream_updates

N_CLIENTS, N_ROUNDS, INTERACTIONS, HIDDEN = 3, 3, 2, 2


async def take_part(i: int, credentials: Credentials) -> None:
    """A device that clicks what has the most of its first feature, in every round until the last."""
    client = EdgeClient(credentials, store=":memory:", experiment=Experiment(seed=i), ranking=Ranking(gate=False))
    features = np.random.default_rng(i).random((8, DIM), np.float32)
    async with client:
        newest = 0
        while (round_ := await client.next_round(after=newest, timeout_s=PATIENCE_S)).open:
            newest = round_.round
            for _ in range(INTERACTIONS):
                serp = client.rank(features)
                client.record_clicks(serp, [int(np.argmax(features[serp.ranking, 0]))])
            await client.wait_settled(PATIENCE_S)


async def encodings_once_replayed(database, federation, training, ranker):
    """Make every model again from the stored updates and compare; returns how the updates are stored."""
    models = {model.version: model for model in await list_models(database, federation)}
    encodings = set()
    for round_ in await list_rounds(database, federation):
        base, model = models[round_.base_version], models[round_.model_version]
        aggregation = make_aggregation(training, ranker)
        async for row in stream_updates(database, federation, round_.round):
            encodings.add((row.encoding, row.n_bytes))
            aggregation.add(unpack_body(row.encoding, row.body, base.n_values), row.n_interactions)
        following = aggregation.finish(unpack_vector(base.weights), Memory(optimiser=base.optimizer_state))
        made = pack_vector(following.weights), following.memory.optimiser
        assert made == (model.weights, model.optimizer_state), f"round {round_.round}"
    return encodings


@on("sqlite")
async def test_kill_9_between_step_and_commit_takes_no_step_twice(deployment):
    """FOLtR-ES: the federator dies with Adam's second step taken and not stored; the next one takes the same step.

    It goes on with the sigmoid units that the federation was created with, although these are no longer the usual ones.
    """
    training = training_for("foltr-es", {"noise_scale": 0.1}, INTERACTIONS)
    options = ("--method", "foltr-es", "--interactions", str(INTERACTIONS))
    neural = {"FOLTR_METHOD_PARAMETERS": "noise_scale=0.1", "FOLTR_RANKER": "neural", "FOLTR_HIDDEN": str(HIDDEN)}
    created_with = neural | with_defaults({"foltr.cli.method.ranker_of_method": {"asked": "sigmoid"}})
    async with asyncio.TaskGroup() as group:
        failpoints = f"{Failpoint.AGGREGATED}=kill@2"
        deployment.start_federator(N_ROUNDS, *options, failpoints=failpoints, **created_with)
        await deployment.serves()
        for i, credentials in enumerate(deployment.devices):
            group.create_task(take_part(i, credentials))
        assert died_by_sigkill(await deployment.exit_code()), deployment.said()
        assert [row.state for row in await list_rounds(deployment.database, DEPLOYED)] == ["completed", "aggregating"]
        deployment.start_federator(N_ROUNDS, *options, **neural)
        assert await deployment.exit_code() == 0, deployment.said()
    ranker = ranker_for("neural", DIM, HIDDEN, "sigmoid")
    encodings = await encodings_once_replayed(deployment.database, DEPLOYED, training, ranker)
    assert encodings == {("evolution", 24)}
    *_, newest = await list_models(deployment.database, DEPLOYED)
    federation = await get_federation(deployment.database, DEPLOYED)
    assert (federation.hidden, federation.activation) == (HIDDEN, "sigmoid")
    # Adam's state begins with how many steps were taken.
    assert (newest.version, int.from_bytes(newest.optimizer_state[:8], "little")) == (N_ROUNDS, N_ROUNDS)
