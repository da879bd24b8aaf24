"""The constraints: what no program can store, however wrong it is."""

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, text, update
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


# Of each table: what no row of it may have in a column.
NO_ROW_HAS = {
    "federations": {
        "name": ["", LONG, "web"], "n_features": [0], "writer_epoch": [-1], "ranker": ["", "neural"], "hidden": [64],
        "activation": ["relu"], "last_order": [-1], "privacy": ["hidden"],
    },
    "ingestion": {"takes_updates": ["anybody"], "n_answers": [-1], "n_collected": [-1]},
    "ingest_workers": {"worker_id": [""]},
    "clients": {
        "client_id": ["", LONG, "a"], "membership": ["maybe", "left", "stranger", "forgotten"], "joined_at": [None],
        "sdk_version": [LONG], "counted_through": [-1], "quarantined_at": [NOW], "quarantine_reason": ["x"],
    },
    "models": {
        "version": [0], "base_version": [1, None], "round": [None], "weights": [bytes(11), None], "n_values": [4],
        "weights_hash": [bytes(15)], "unlearning_job": [1], "restored_version": [0],
    },
    "rounds": {
        "number": [0, 1], "base_version": [7], "state": ["paused", "collecting", "completed"], "reason": [None, LONG],
        "model_version": [0], "closed_at": [None], "n_updates": [None], "n_interactions": [None],
        "min_clients": [0, 11], "min_time_s": [-1.0, 61.0], "closes_at": [NOW.replace(year=2025)],
        "aggregation": [None], "byzantine": [None], "aggregation_parameters": [None], "aggregation_fallback": [None],
        "clip_norm": [1.0], "anchor_version": [1], "part": [-1, None],
    },
    "updates": {
        "round": [9], "client": [999, None], "update_id": ["", LONG], "n_interactions": [0], "base_version": [-1],
        "n_bytes": [-1], "covers_after": [0], "covers_through": [5], "cohort": [0], "encoding": ["masked_u64"],
        "fault": ["misplaced"], "vote": [2],
    },
    "round_aggregations": {"round": [9], "rule": [""], "fallback_reason": [""], "n_kept": [-1], "n_dropped": [-1]},
    "update_fates": {"round": [9], "client": [999, None], "fate": ["lost"], "share": [1.5, -0.5], "reason": [LONG]},
    "defence_records": {"job": [-1, None], "client": [999]},
    "trainings": {"from_round": [0]},
    "policies": {"hash": [bytes(31)], "version": [0]},
    "round_sums": {
        "round": [9], "cohort": [-1], "n_clients": [0, 10], "kept": [b"\xff"], "n_norm_proofs_failed": [-1, 2],
        "set_digest": [bytes(31)], "masked_sum": [bytes(9)], "fate": ["lost"], "share": [1.5],
    },
    "helper_answers": {"cohort": [1], "start": [-1]},
    "update_bodies": {"part": [-1, None], "cipher": ["rot13"], "key_fingerprint": [bytes(8)]},
    "body_parts": {"first_round": [0], "last_round": [1], "interval": [0]},
    "erasures": {
        "pseudonym": ["a"], "client": [999], "state": ["gone", "done", "unlearning"], "key_fingerprint": [bytes(7)],
        "requested_by": ["stranger"], "n_updates": [0], "n_events": [-1], "first_round": [None], "n_rounds": [0],
        "erased_digest": [""], "receipt": ["x"], "job": [9],
    },
    "unlearning_jobs": {
        "number": [0], "state": ["lost", "paused"], "strategy": ["hope"], "interval": [0], "local_interactions": [0],
        "start_version": [7], "step": [3], "coverage_sum": [1.5], "weights": [None], "reason": ["x"],
        "closed_at": [NOW],
    },
    "audit_log": {"seq": [0], "kind": [""], "hash": ["1"]},
    "orders": {
        "number": [0], "kind": [""], "digest": [bytes(31)], "outcome": ["lost", "obeyed"], "code": [None, ""],
        "client": [999], "detail": [LONG],
    },
    "events": {"kind": [""], "code": [""], "client": [999], "detail": [LONG], "minute": [1]},
}  # fmt: skip
# What no row may have beside each other.
NOR_TOGETHER = [
    ("federations", {"ranker": "neural", "hidden": 64}),
    ("federations", {"ranker": "neural", "hidden": 64, "activation": "tanh"}),
    ("models", {"version": 0, "base_version": None, "round": None}),
    ("models", {"base_version": 7, "version": 8}),
    # A second open round.
    ("rounds", {"state": "aggregating", "closed_at": None, "reason": None, "n_updates": None, "n_interactions": None}),
    ("updates", {"covers_after": -1, "covers_through": 9}),
    ("updates", {"covers_after": 5, "covers_through": 5}),
    ("updates", {"covers_after": 0, "covers_through": 4}),
    ("clients", {"quarantined_at": NOW, "quarantine_reason": LONG}),
    # A policy that is not stored.
    ("rounds", {"policy_hash": bytes(32), "clip_norm": 1.0}),
    ("updates", {"cohort": 0, "position": 0}),
    ("updates", {"encoding": "masked_u64", "cohort": 0}),
    # Another set than the stored one.
    ("helper_answers", {"set_digest": b"x" * 32}),
    ("models", {"weights": None, "withdrawn_at": NOW}),
    ("models", {"tainted_at": NOW, "withdrawn_at": NOW}),
    ("update_bodies", {"cipher": "aes-256-gcm", "key_fingerprint": bytes(8)}),
    ("update_bodies", {"cipher": "aes-256-gcm", "body": bytes(28)}),
    ("update_bodies", {"cipher": "aes-256-gcm", "body": bytes(28), "key_fingerprint": bytes(7)}),
    ("update_bodies", {"cipher": "aes-256-gcm", "body": bytes(27), "key_fingerprint": bytes(8)}),
    ("models", {"restored_version": 0, "unlearning_job": 1, "round": None}),
    ("models", {"restored_version": 7, "round": None}),
    ("models", {"restored_version": 1, "round": None}),
    ("updates", {"clicked": 1.5, "reward": 0.0, "base_reward": 0.0}),
    ("updates", {"clicked": 0.5, "reward": 0.6, "base_reward": 0.0}),
    ("updates", {"clicked": 0.5, "reward": 0.0, "base_reward": -0.1}),
    ("updates", {"clicked": 0.5, "reward": None, "base_reward": 0.0}),
    ("updates", {"reward": 0.0, "base_reward": 0.0}),
    ("erasures", {"state": "done", "completed_at": NOW}),
    ("erasures", {"completed_at": NOW, "audit_seq": 1}),
    ("unlearning_jobs", {"state": "done", "weights": None, "closed_at": NOW}),
    ("unlearning_jobs", {"state": "failed", "weights": None, "closed_at": NOW, "reason": LONG}),
]
WRONG = [
    (table, {column: value}) for table, columns in NO_ROW_HAS.items() for column in columns for value in columns[column]
]
WRONG += NOR_TOGETHER
_NEEDED = {"update_fates": "round_aggregations", "helper_answers": "round_sums", "update_bodies": "updates"}


@pytest.mark.parametrize("table", sorted({table for table, _ in WRONG}))
async def test_constraints_refuse(stored, valid, table: str) -> None:
    """A row fits but for one thing, and is refused for it; without that it is stored."""
    await stored.join("a")
    await stored.open(1)
    if (needed := _NEEDED.get(table)) is not None:
        await stored.write(insert(metadata.tables[needed]), valid[needed])
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
    updates, rounds = metadata.tables["updates"], metadata.tables["rounds"]
    await stored.join("a", "b")
    await stored.open(1)
    covering = valid["updates"] | {"covers_after": 0, "covers_through": 9}
    await stored.write(insert(updates), [covering, covering | {"client": 2}])
    closed = {"state": "abandoned", "closed_at": NOW, "reason": "x", "n_updates": 2, "n_interactions": 10}
    await stored.write(update(rounds).values(closed))
    await stored.open(2)
    again = covering | {"round": 2, "update_id": "u2"}
    async with stored.refuses(DBAPIError, "covers_after"):
        await stored.write(insert(updates), again)
    await stored.write(insert(updates), again | {"covers_after": 9, "covers_through": 14})


async def test_what_other_rows_refer_to_stays(learned) -> None:
    """Neither deleted nor changed: foreign keys are checked, not only declared."""
    for wrong in ("DELETE FROM models", "DELETE FROM clients", "UPDATE updates SET round = 9"):
        async with learned.refuses(DBAPIError):
            await learned.write(text(wrong))


async def test_a_name_is_given_no_key_twice(stored) -> None:
    """A client whose row was deleted is nobody's, and a key in an old backup is not suddenly somebody else's."""
    clients = metadata.tables["clients"]
    await stored.join("a", "b")
    await stored.write(delete(clients).where(clients.c.client_id == "b"))
    await stored.join("b")
    keys = select(clients.c.client_id, clients.c.id).order_by(clients.c.id)
    assert await stored.read(keys) == [("a", 1), ("b", 3)]
