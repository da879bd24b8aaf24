"""The constraints: what no program can store, however wrong it is."""

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import DBAPIError

from foltr.storage.database import Database
from foltr.storage.tables import metadata

LONG = "x" * 1000
# The first client that joins; `test_a_name_is_given_no_key_twice` shows what keys are.
KEY_OF_A = 1
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def valid(stored) -> dict[str, dict[str, Any]]:
    """One row for each table that fits beside the federation `web`, its client `a` and its round 1."""
    opening = dataclasses.asdict(stored.opening(2))
    now = opening["opened_at"]
    in_web = {"federation": "web"}
    return {
        "federations": {
            "name": "b", "writer_epoch": 0, "ranker": "linear", "n_features": 3, "created_at": now,
        },
        "clients": in_web | {
            "client_id": "b", "membership": "joined", "online": True, "joined_at": now, "last_seen_at": now,
        },
        "models": in_web | {
            "version": 1, "base_version": 0, "round": 1, "n_values": 3, "weights": bytes(12), "weights_hash": bytes(16),
            "created_at": now,
        },
        "rounds": in_web | opening | {
            "state": "abandoned", "closed_at": now, "reason": "x", "n_updates": 0, "n_interactions": 0,
        },
        "updates": in_web | {
            "round": 1, "client": KEY_OF_A, "update_id": "u1", "base_version": 0, "n_interactions": 5,
            "encoding": "dense_f32", "n_bytes": 2, "received_at": now,
        },
        "update_bodies": in_web | {"round": 1, "client": KEY_OF_A, "body": b"ab"},
        "body_parts": in_web | {"first_round": 2, "last_round": 51, "interval": 10},
        "events": in_web | {"at": now, "kind": "update_rejected", "detail": ""},
        "round_aggregations": in_web | {
            "round": 1, "rule": "krum", "parameters": "{}", "n_kept": 1, "n_clipped": 0, "n_dropped": 9,
        },
        "update_fates": in_web | {"round": 1, "client": KEY_OF_A, "fate": "kept", "reason": ""},
        "defence_records": in_web | {"job": 0, "client": KEY_OF_A, "record": b"record"},
        "trainings": in_web | {"from_round": 1, "training": "{}"},
        "erasures": in_web | {
            "pseudonym": "a" * 32, "state": "erased", "requested_at": now, "requested_by": "device", "erased_at": now,
            "n_rounds": 1, "n_updates": 2, "n_events": 0, "erased_digest": "0" * 64, "first_round": 1,
            "key_destroyed": False, "told": False,
        },
        "unlearning_jobs": in_web | {
            "number": 1, "state": "running", "strategy": "fed_eraser", "interval": 10, "local_interactions": 3,
            "created_at": now, "start_version": 0, "start_round": 1, "step": 1, "n_steps": 2, "last_round": 1,
            "weights": bytes(12), "coverage_sum": 0.5, "figures": "{}",
        },
        "orders": in_web | {
            "number": 1, "kind": "quarantine", "payload": b"{}", "digest": bytes(32), "outcome": "refused",
            "code": "stale", "detail": "", "client": KEY_OF_A, "at": now,
        },
        "policies": in_web | {"hash": bytes(32), "version": 1, "signed": b"policy", "adopted_at": now},
        "round_sums": in_web | {
            "round": 1, "cohort": 0, "n_tickets": 9, "n_clients": 8, "kept": b"\xff\0", "set_digest": bytes(32),
        },
        "helper_answers": in_web | {
            "round": 1, "cohort": 0, "helper": "ada", "start": 0, "set_digest": bytes(32), "answer": b"answer",
        },
        "ingestion": in_web | {"takes_updates": "workers", "n_answers": 0, "n_collected": 0, "evaluation": False},
        "ingest_workers": in_web | {"worker_id": "one", "seen_at": now, "arrived_before": now},
        "audit_log": in_web | {
            "seq": 1, "at": now, "kind": "client_erased", "body": "{}", "previous_hash": "0" * 64, "hash": "1" * 64,
        },
    }  # fmt: skip


WRONG = [
    ("federations", {"name": ""}),
    ("federations", {"name": LONG}),
    ("federations", {"name": "web"}),
    ("federations", {"n_features": 0}),
    ("federations", {"writer_epoch": -1}),
    ("federations", {"ranker": ""}),
    ("federations", {"ranker": "neural"}),
    ("federations", {"hidden": 64}),
    ("federations", {"ranker": "neural", "hidden": 64}),
    ("federations", {"activation": "relu"}),
    ("federations", {"ranker": "neural", "hidden": 64, "activation": "tanh"}),
    ("federations", {"last_order": -1}),
    ("ingestion", {"takes_updates": "anybody"}),
    ("ingestion", {"n_answers": -1}),
    ("ingestion", {"n_collected": -1}),
    ("ingest_workers", {"worker_id": ""}),
    ("clients", {"client_id": ""}),
    ("clients", {"client_id": LONG}),
    ("clients", {"client_id": "a"}),
    ("clients", {"membership": "maybe"}),
    ("clients", {"membership": "left"}),
    ("clients", {"membership": "stranger"}),
    ("clients", {"membership": "forgotten"}),
    ("clients", {"joined_at": None}),
    ("clients", {"sdk_version": LONG}),
    ("clients", {"counted_through": -1}),
    ("models", {"version": 0}),
    ("models", {"version": 0, "base_version": None, "round": None}),
    ("models", {"base_version": 1}),
    ("models", {"base_version": None}),
    ("models", {"base_version": 7, "version": 8}),
    ("models", {"round": None}),
    ("models", {"weights": bytes(11)}),
    ("models", {"n_values": 4}),
    ("models", {"weights_hash": bytes(15)}),
    ("rounds", {"number": 0}),
    ("rounds", {"number": 1}),
    ("rounds", {"base_version": 7}),
    ("rounds", {"state": "paused"}),
    ("rounds", {"state": "collecting"}),
    ("rounds", {"state": "completed"}),
    ("rounds", {"reason": None}),
    ("rounds", {"reason": LONG}),
    ("rounds", {"model_version": 0}),
    ("rounds", {"closed_at": None}),
    ("rounds", {"n_updates": None}),
    ("rounds", {"n_interactions": None}),
    ("rounds", {"min_clients": 0}),
    ("rounds", {"min_clients": 11}),
    ("rounds", {"min_time_s": -1.0}),
    ("rounds", {"min_time_s": 61.0}),
    ("rounds", {"closes_at": NOW.replace(year=2025)}),
    # A second open round.
    ("rounds", {"state": "aggregating", "closed_at": None, "reason": None, "n_updates": None, "n_interactions": None}),
    ("updates", {"round": 9}),
    ("updates", {"client": 999}),
    ("updates", {"client": None}),
    ("updates", {"update_id": ""}),
    ("updates", {"update_id": LONG}),
    ("updates", {"n_interactions": 0}),
    ("updates", {"base_version": -1}),
    ("updates", {"n_bytes": -1}),
    ("updates", {"covers_after": 0}),
    ("updates", {"covers_through": 5}),
    ("updates", {"covers_after": -1, "covers_through": 9}),
    ("updates", {"covers_after": 5, "covers_through": 5}),
    ("updates", {"covers_after": 0, "covers_through": 4}),
    ("clients", {"quarantined_at": NOW}),
    ("clients", {"quarantine_reason": "x"}),
    ("clients", {"quarantined_at": NOW, "quarantine_reason": LONG}),
    ("rounds", {"aggregation": None}),
    ("rounds", {"byzantine": None}),
    ("rounds", {"aggregation_parameters": None}),
    ("rounds", {"aggregation_fallback": None}),
    ("round_aggregations", {"round": 9}),
    ("round_aggregations", {"rule": ""}),
    ("round_aggregations", {"fallback_reason": ""}),
    ("round_aggregations", {"n_kept": -1}),
    ("round_aggregations", {"n_dropped": -1}),
    ("update_fates", {"round": 9}),
    ("update_fates", {"client": 999}),
    ("update_fates", {"client": None}),
    ("update_fates", {"fate": "lost"}),
    ("update_fates", {"share": 1.5}),
    ("update_fates", {"share": -0.5}),
    ("update_fates", {"reason": LONG}),
    ("defence_records", {"job": -1}),
    ("defence_records", {"job": None}),
    ("defence_records", {"client": 999}),
    ("trainings", {"from_round": 0}),
    ("federations", {"privacy": "hidden"}),
    ("rounds", {"policy_hash": bytes(32), "clip_norm": 1.0}),  # a policy that is not stored
    ("rounds", {"clip_norm": 1.0}),
    ("updates", {"cohort": 0}),
    ("updates", {"cohort": 0, "position": 0}),
    ("updates", {"encoding": "masked_u64", "cohort": 0}),
    ("updates", {"encoding": "masked_u64"}),
    ("updates", {"fault": "misplaced"}),
    ("policies", {"hash": bytes(31)}),
    ("policies", {"version": 0}),
    ("round_sums", {"round": 9}),
    ("round_sums", {"cohort": -1}),
    ("round_sums", {"n_clients": 0}),
    ("round_sums", {"n_clients": 10}),
    ("round_sums", {"kept": b"\xff"}),
    ("round_sums", {"n_norm_proofs_failed": -1}),
    ("round_sums", {"n_norm_proofs_failed": 2}),
    ("round_sums", {"set_digest": bytes(31)}),
    ("round_sums", {"masked_sum": bytes(9)}),
    ("round_sums", {"fate": "lost"}),
    ("round_sums", {"share": 1.5}),
    ("helper_answers", {"cohort": 1}),
    ("helper_answers", {"set_digest": b"x" * 32}),  # another set than the stored one
    ("helper_answers", {"start": -1}),
    ("models", {"weights": None}),
    ("models", {"weights": None, "withdrawn_at": NOW}),
    ("models", {"tainted_at": NOW, "withdrawn_at": NOW}),
    ("models", {"unlearning_job": 1}),
    ("update_bodies", {"part": -1}),
    ("update_bodies", {"part": None}),
    ("update_bodies", {"cipher": "rot13"}),
    ("update_bodies", {"cipher": "aes-256-gcm", "key_fingerprint": bytes(8)}),
    ("update_bodies", {"cipher": "aes-256-gcm", "body": bytes(28)}),
    ("update_bodies", {"cipher": "aes-256-gcm", "body": bytes(28), "key_fingerprint": bytes(7)}),
    ("update_bodies", {"cipher": "aes-256-gcm", "body": bytes(27), "key_fingerprint": bytes(8)}),
    ("update_bodies", {"key_fingerprint": bytes(8)}),
    ("body_parts", {"first_round": 0}),
    ("body_parts", {"last_round": 1}),
    ("body_parts", {"interval": 0}),
    ("erasures", {"pseudonym": "a"}),
    ("erasures", {"client": 999}),
    ("erasures", {"state": "gone"}),
    ("erasures", {"key_fingerprint": bytes(7)}),
    ("erasures", {"requested_by": "stranger"}),
    ("erasures", {"n_updates": 0}),
    ("erasures", {"n_events": -1}),
    ("erasures", {"first_round": None}),
    ("erasures", {"n_rounds": 0}),
    ("models", {"restored_version": 0}),
    ("models", {"restored_version": 0, "unlearning_job": 1, "round": None}),
    ("models", {"round": None}),
    ("models", {"restored_version": 7, "round": None}),
    ("models", {"restored_version": 1, "round": None}),
    ("rounds", {"anchor_version": 1}),
    ("rounds", {"part": -1}),
    ("rounds", {"part": None}),
    ("updates", {"vote": 2}),
    ("updates", {"clicked": 1.5, "reward": 0.0, "base_reward": 0.0}),
    ("updates", {"clicked": 0.5, "reward": 0.6, "base_reward": 0.0}),
    ("updates", {"clicked": 0.5, "reward": 0.0, "base_reward": -0.1}),
    ("updates", {"clicked": 0.5, "reward": None, "base_reward": 0.0}),
    ("updates", {"reward": 0.0, "base_reward": 0.0}),
    ("erasures", {"erased_digest": ""}),
    ("erasures", {"state": "done"}),
    ("erasures", {"state": "done", "completed_at": NOW}),
    ("erasures", {"completed_at": NOW, "audit_seq": 1}),
    ("erasures", {"receipt": "x"}),
    ("erasures", {"state": "unlearning"}),
    ("erasures", {"job": 9}),
    ("unlearning_jobs", {"number": 0}),
    ("unlearning_jobs", {"state": "lost"}),
    ("unlearning_jobs", {"strategy": "hope"}),
    ("unlearning_jobs", {"interval": 0}),
    ("unlearning_jobs", {"local_interactions": 0}),
    ("unlearning_jobs", {"start_version": 7}),
    ("unlearning_jobs", {"step": 3}),
    ("unlearning_jobs", {"coverage_sum": 1.5}),
    ("unlearning_jobs", {"weights": None}),
    ("unlearning_jobs", {"state": "paused"}),
    ("unlearning_jobs", {"reason": "x"}),
    ("unlearning_jobs", {"closed_at": NOW}),
    ("unlearning_jobs", {"state": "done", "weights": None, "closed_at": NOW}),
    ("unlearning_jobs", {"state": "failed", "weights": None, "closed_at": NOW, "reason": LONG}),
    ("audit_log", {"seq": 0}),
    ("audit_log", {"kind": ""}),
    ("audit_log", {"hash": "1"}),
    ("orders", {"number": 0}),
    ("orders", {"kind": ""}),
    ("orders", {"digest": bytes(31)}),
    ("orders", {"outcome": "lost"}),
    ("orders", {"outcome": "obeyed"}),
    ("orders", {"code": None}),
    ("orders", {"code": ""}),
    ("orders", {"client": 999}),
    ("orders", {"detail": LONG}),
    ("events", {"kind": ""}),
    ("events", {"code": ""}),
    ("events", {"client": 999}),
    ("events", {"detail": LONG}),
    ("events", {"minute": 1}),
]
_NEEDED = {"update_fates": "round_aggregations", "helper_answers": "round_sums", "update_bodies": "updates"}


@pytest.mark.parametrize("table", sorted({table for table, _ in WRONG}))
async def test_constraints_refuse(stored, valid, table: str) -> None:
    """A row fits but for one thing, and is refused for it; without that it is stored."""
    await stored.join("a")
    await stored.open(1)
    if (needed := _NEEDED.get(table)) is not None:
        async with stored.db.transaction() as connection:
            await connection.execute(insert(metadata.tables[needed]), valid[needed])
    columns = metadata.tables[table].columns
    every = [wrong for of, wrong in WRONG if of == table]
    every += [{column.name: None} for column in columns if not column.nullable and not column.primary_key]
    if table != "update_bodies" and "federation" in columns and columns["federation"].foreign_keys:
        every.append({"federation": "nowhere"})
    assert every == [wrong for wrong in every if await is_refused(stored.db, table, valid[table] | wrong)]
    assert not await is_refused(stored.db, table, valid[table])


async def is_refused(db: Database, table: str, row: dict[str, Any]) -> bool:
    try:
        async with db.transaction() as connection:
            await connection.execute(insert(metadata.tables[table]), row)
    except DBAPIError:
        return True
    return False


async def test_no_two_updates_of_a_client_cover_an_interaction_from_the_same_number_on(stored, valid) -> None:
    """The second one is refused, whatever its identity and its round; of another client it is not."""
    await stored.join("a", "b")
    await stored.open(1)
    covering = valid["updates"] | {"covers_after": 0, "covers_through": 9}
    async with stored.db.transaction() as connection:
        await connection.execute(insert(metadata.tables["updates"]), covering)
        await connection.execute(insert(metadata.tables["updates"]), covering | {"client": 2})
        await connection.execute(
            update(metadata.tables["rounds"]).values(
                state="abandoned", closed_at=NOW, reason="x", n_updates=2, n_interactions=10
            )
        )
    await stored.open(2)
    again = covering | {"round": 2, "update_id": "u2"}
    with pytest.raises(DBAPIError, match="covers_after"):
        async with stored.db.transaction() as connection:
            await connection.execute(insert(metadata.tables["updates"]), again)
    async with stored.db.transaction() as connection:
        await connection.execute(insert(metadata.tables["updates"]), again | {"covers_after": 9, "covers_through": 14})


async def test_a_name_is_given_no_key_twice(stored) -> None:
    """A client whose row was deleted is nobody's, and a key in an old backup is not suddenly somebody else's."""
    await stored.join("a", "b")
    clients = metadata.tables["clients"]
    async with stored.db.transaction() as connection:
        await connection.execute(delete(clients).where(clients.c.client_id == "b"))
    await stored.join("b")
    async with stored.db.reading() as connection:
        keys = (await connection.execute(select(clients.c.client_id, clients.c.id).order_by(clients.c.id))).all()
    assert keys == [("a", 1), ("b", 3)]
