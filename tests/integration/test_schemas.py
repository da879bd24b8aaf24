"""A federation with a feature schema: devices with its features teach it, and one with others waits without harm."""

import numpy as np
import pytest
from integration.peers import DIM, FEDERATION, ONE_EACH, TOPICS, Operator, served
from support.broker_links import connected
from support.waiting import PATIENCE_S, until

from foltr.core.errors import SettingsError
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.core.protocol.signed_documents import issue_schema
from foltr.edge_client.blockers import BlockerKind
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Ranking
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.storage.models import latest_model, list_models

SHOP = FeatureSchema(
    name="shop", version=1, features=[Feature(name=f"f{i}", scaling="min_max", low=0, high=10) for i in range(DIM)]
)
OLD = SHOP.model_copy(update={"features": SHOP.features[: DIM - 1]})
FIRST = pack_vector([8.0, 0.0, 0.0, -0.5])


def plan_of(operator, schema, n_rounds):
    return FederationPlan(
        FEDERATION,
        DIM,
        RoundPolicy(1, 1, 0.0, 3600.0),
        ONE_EACH,
        schema=schema,
        first_weights=FIRST,
        stop_after_round=n_rounds,
        enrolment_key=operator.key.public,
    )


def search(client, n_features):
    """Click on the last document shown."""
    features = 10 * np.random.default_rng(3).random((4, n_features))
    serp = client.rank(features)
    client.record_clicks(serp, [len(serp.ranking) - 1])
    return serp.ranking.tolist()


async def test_two_devices_with_different_schemas_are_in_one_federation(mqtt_broker, database, tmp_path):
    """One teaches; the other's clicks wait, in no update, also once its application was brought up to date."""
    operator = Operator()
    new, old = (operator.enrol(name, mqtt_broker) for name in ("new", "old"))
    signed = issue_schema(operator.key, SHOP, FEDERATION)
    async with connected(mqtt_broker, "operator") as link:
        await link.publish(TOPICS.schema, signed.signed, retain=True)
    (tmp_path / "shop.json").write_text(SHOP.to_json())
    plan = plan_of(operator, SHOP, n_rounds=2)
    async with served(mqtt_broker, database, plan, operator.federator_key):
        store = tmp_path / "old.sqlite"
        async with EdgeClient(old, store=store, schema=OLD, experiment=Experiment(seed=1)) as client:
            await client.next_round(timeout_s=PATIENCE_S)
            await until(lambda: "3 features here and 4 there" in (client.schema_difference or ""))
            assert [search(client, DIM - 1) for _ in range(3)] == [[0, 1, 2, 3]] * 3
            assert (client.n_waiting, client.model_version) == (3, None)
            # The federator's heartbeat may come after its round; without it the federator is away.
            await until(lambda: client.blocker is not None and client.blocker.kind is BlockerKind.OTHER_FEATURES)
            assert client.schema_difference in client.blocker.message
            async with EdgeClient(
                new,
                store=":memory:",
                schema=tmp_path / "shop.json",
                experiment=Experiment(seed=1),
                ranking=Ranking(exploration="none"),
            ) as other:
                await other.next_round(timeout_s=PATIENCE_S)
                assert other.schema_difference is None
                assert other.weights.tolist() == unpack_vector(FIRST).tolist()
                search(other, DIM)
                assert not (await other.wait_settled(PATIENCE_S)).is_pending
                await other.next_round(after=1, timeout_s=PATIENCE_S)
            assert client.n_updates_counted == 0
            assert client.n_waiting == 3
        async with EdgeClient(old, store=store, schema=SHOP, experiment=Experiment(seed=1)) as client:
            await client.next_round(after=1, timeout_s=PATIENCE_S)
            assert client.n_waiting == 0
            search(client, DIM)
            assert not (await client.wait_settled(PATIENCE_S)).is_pending
            assert client.n_updates_counted == 1
            # Numbered above the three that no update has, and none will.
            assert client.counted_through == 4
    models = await list_models(database, FEDERATION)
    assert [model.version for model in models] == [0, 1, 2]
    assert models[0].weights == FIRST


async def test_a_federation_goes_on_with_its_schema_alone(mqtt_broker, database):
    """Restarted with the same it goes on; with another, or none, it is refused in words, and nothing is announced."""
    operator = Operator()
    for _ in range(2):
        async with served(mqtt_broker, database, plan_of(operator, SHOP, n_rounds=1), operator.federator_key):
            pass
    for other in (None, SHOP.model_copy(update={"version": 2})):
        with pytest.RaisesGroup(pytest.RaisesExc(SettingsError, match=f"schema_hash = '{SHOP.hash.hex()}'")):
            async with served(mqtt_broker, database, plan_of(operator, other, n_rounds=1), operator.federator_key):
                pytest.fail("it serves")
    model = await latest_model(database, FEDERATION)
    assert model is not None
    assert model.weights == FIRST
