"""A federator that may not lead refuses before it changes anything, also where no broker answers."""

from datetime import UTC, datetime
from typing import Any

import pytest
from support.databases import open_migrated
from support.sealed_updates import add_sealed_update
from support.secure_cohorts import SecureFederation
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.core.errors import SettingsError
from foltr.core.protocol.enrolment import issue_roster
from foltr.core.protocol.orders import RotateKey
from foltr.core.protocol.roster import Roster
from foltr.core.protocol.signed_orders import issue_order
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import OrderOutcome
from foltr.core.protocol.trainings import PdgdTraining
from foltr.federator.deciding.state import KeyReplacedError
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.secure_terms import SecureSettings
from foltr.federator.service import FederatorService
from foltr.storage.arrivals import commit_batch
from foltr.storage.database import Database
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.keys import KeyStore
from foltr.storage.leases import take_lease
from foltr.storage.policies import adopt_policy
from foltr.storage.records import Batch, NewOrder
from foltr.storage.schema import metadata
from foltr.storage.sum_records import PolicyRecord

NOBODY = BrokerAddress.parse("mqtt://127.0.0.1:1")
POLICY = RoundPolicy(1, 10, 0.0, 60.0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def database(migrated_url: str, tmp_path, monkeypatch):
    monkeypatch.setattr("foltr.storage.leases.LEASE_S", PATIENCE_S)  # nobody renews it here
    async with await open_migrated(migrated_url, KeyStore(tmp_path / "leaders")) as opened:
        yield opened


async def dump(db: Database) -> dict[str, list[tuple[Any, ...]]]:
    async with db.reading() as connection:
        tables = metadata.sorted_tables
        return {each.name: [tuple(row) for row in await connection.execute(each.select())] for each in tables}


async def refusal(db: Database, plan: FederationPlan, *, key: SigningKey | None = None, **options: Any) -> str:
    """Start a federator while another one leads; return why it refuses, having changed nothing."""
    assert await take_lease(db, plan.federation, "leader")
    before = await dump(db)
    with pytest.raises(SettingsError) as refused:
        await FederatorService(plan, db, NOBODY, key=key, **options).run()
    assert await dump(db) == before
    return str(refused.value)


@pytest.mark.parametrize("options", [{}, {"shares": True}, {"standby": True}], ids=["all", "leader", "standby"])
async def test_a_federator_with_other_data_keys_leaves_the_open_round_as_it_is(database, tmp_path, options):
    """With them the round makes a model. The folder that was named by mistake is not made either."""
    await add_sealed_update(database, "mail")
    database.keys = KeyStore(tmp_path / "another")
    assert "keys of another folder" in await refusal(database, FederationPlan("mail", 1, POLICY), **options)
    assert not (tmp_path / "another").exists()


async def test_a_federator_with_a_former_key_disturbs_no_leader(database):
    """Devices trust the leader's key, and no other."""
    operator, former, present = (SigningKey.generate() for _ in range(3))
    await create_federation(database, "mail", 1, "linear", bytes(4), NOW)
    epoch = await claim_federation(database, "mail", 0.0)
    rotation = RotateKey(federation="mail", sequence=1, old_key=former.public, new_key=present.public)
    order = issue_order(operator, rotation, 1)
    stored = NewOrder(1, "rotate_key", order.payload, order.digest, OrderOutcome.OBEYED, NOW)
    await commit_batch(database, "mail", epoch, Batch(orders=[stored]))
    plan = FederationPlan("mail", 1, POLICY, enrolment_key=operator.public)
    assert str(KeyReplacedError("mail")) == await refusal(database, plan, key=former)


async def test_a_federator_of_another_operator_disturbs_no_leader(database):
    """The stored roster says whose the federation is."""
    operator, another = SigningKey.generate(), SigningKey.generate()
    await create_federation(database, "mail", 1, "linear", bytes(4), NOW)
    epoch = await claim_federation(database, "mail", 0.0)
    roster = issue_roster(
        operator, Roster(federation="mail", version=1, through=0, revoked=[], salt=bytes(32), forgotten=[])
    )
    await commit_batch(database, "mail", epoch, Batch(roster=(1, roster)))
    plan = FederationPlan("mail", 1, POLICY, enrolment_key=another.public)
    assert "was signed with another key" in await refusal(database, plan)


async def test_a_federator_with_another_policy_of_a_number_disturbs_no_leader(database):
    """An operator's folder was restored: the newest policy would be another one than devices know."""
    federation = SecureFederation(n_interactions=1)
    plan = FederationPlan(
        "mail",
        federation.dim,
        RoundPolicy(3, 10, 0.0, 60.0),
        PdgdTraining(min_interactions=1, max_interactions=1),
        enrolment_key=federation.operator.public,
        secure=SecureSettings(federation.policy, clip_norm=2.56),
    )
    weights = bytes(4 * federation.dim)
    await create_federation(database, "mail", federation.dim, "linear", weights, NOW, privacy=plan.privacy)
    epoch = await claim_federation(database, "mail", 0.0)
    known = federation.issue(n_interactions=1, max_participations=7)
    await adopt_policy(database, "mail", epoch, PolicyRecord(known.hash, 1, known.signed, NOW))
    assert "have another policy 1" in await refusal(database, plan)
