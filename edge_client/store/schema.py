"""The tables of a device's store."""

from typing import Final

# Change it with the schema.
SCHEMA_VERSION: Final = 2
SCHEMA: Final = """
CREATE TABLE owner (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    state TEXT NOT NULL CHECK (state IN ('nobody', 'client', 'forgotten')),
    federation TEXT,  -- whose clicks these are; nobody's yet before they are enrolled
    client_id TEXT,
    mark BLOB,        -- of a client that was forgotten: a salted hash of its name
    CHECK ((state = 'client') = (federation IS NOT NULL) AND (state = 'client') = (client_id IS NOT NULL)),
    CHECK ((state = 'forgotten') = (mark IS NOT NULL))
) STRICT;
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
-- Nearly every transaction writes a row of it.
CREATE TABLE believed (
    topic TEXT PRIMARY KEY,
    signer BLOB NOT NULL,  -- the federator's public key then
    sequence INTEGER NOT NULL CHECK (sequence >= 0)  -- the highest that was believed there: nothing older is
) STRICT, WITHOUT ROWID;
CREATE TABLE interactions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again: what counts, and what was learned, are told by it
    serp_id TEXT NOT NULL UNIQUE,
    n_documents INTEGER NOT NULL CHECK (n_documents > 0),
    features BLOB NOT NULL,   -- little-endian float32, (n_documents, features), row by row
    ranking BLOB NOT NULL,    -- little-endian int64: the shown documents, best first
    clicks BLOB NOT NULL,     -- one byte a shown document: 1 clicked, 0 not
    variant INTEGER NOT NULL, -- which of a method's rankers showed the list
    base_version INTEGER,     -- and of which global model; NULL before the first
    reversals BLOB,           -- little-endian float64, one for each pair shown: foltr.core.learning.display
    log_probability REAL,     -- of the list as it was drawn
    schema_hash BLOB CHECK (length(schema_hash) = 32),  -- of the schema its features are of; NULL without one
    relearned INTEGER NOT NULL DEFAULT 0 CHECK (relearned >= 0),  -- in so many steps of unlearning jobs
    base_reward REAL CHECK (base_reward BETWEEN 0 AND 1),  -- foltr.core.learning.rewards; NULL: nobody is to know
    credit REAL CHECK (credit BETWEEN -1 AND 1),  -- foltr.core.learning.gate; NULL likewise
    source TEXT NOT NULL DEFAULT 'base' CHECK (source IN ('base', 'model', 'interleaved')),  -- whose order it showed
    recorded_at INTEGER NOT NULL DEFAULT 0  -- by the device's clock, in seconds since the epoch
) STRICT;
CREATE TABLE bounds (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    watermark INTEGER CHECK (watermark >= 0),  -- interactions up to it count; NULL until the federation has told it
    floor INTEGER NOT NULL CHECK (floor >= 0)   -- interactions up to it are spent, whether they count or not
) STRICT;
CREATE TABLE pending_update (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    update_id TEXT NOT NULL,
    round INTEGER NOT NULL,
    after INTEGER NOT NULL,    -- it covers the interactions above this one
    through INTEGER NOT NULL,  -- up to this one
    payload BLOB NOT NULL,
    local_state BLOB,          -- of the method, with what the update holds learned; never sent
    CHECK (0 <= after AND after < through)
) STRICT;
CREATE TABLE counted_updates (
    through INTEGER PRIMARY KEY,
    after INTEGER NOT NULL CHECK (0 <= after AND after < through),
    local_state BLOB
) STRICT;
-- What the client has spent of its privacy (`foltr.edge_client.store.ledger`).
CREATE TABLE participations (
    participation INTEGER PRIMARY KEY CHECK (participation > 0),
    round INTEGER,           -- NULL: this row is of all participations of a client that was forgotten
    policy_version INTEGER,
    policy_hash BLOB CHECK (length(policy_hash) = 32),
    rho REAL NOT NULL CHECK (rho > 0),  -- what they cost in zero-concentrated differential privacy
    epsilon REAL CHECK (epsilon > 0),   -- likewise the pure one of the noise; NULL where that gives none
    proof_rho REAL NOT NULL CHECK (proof_rho >= 0 AND proof_rho < rho),  -- what of rho is that of norm proofs
    delta REAL NOT NULL CHECK (delta >= 0),  -- the probability that rho does not hold, of norm proofs, too
    CHECK ((proof_rho = 0) = (delta = 0)),
    CHECK ((round IS NULL) = (policy_hash IS NULL) AND (round IS NULL) = (policy_version IS NULL))
) STRICT;
-- Of the gate (`foltr.core.learning.gate`), which decides whether lists come from the model.
CREATE TABLE gate (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    is_open INTEGER NOT NULL CHECK (is_open IN (0, 1))
) STRICT;
-- What it decides by, as means in which the newest number weighs most.
CREATE TABLE gate_evidence (
    name TEXT PRIMARY KEY CHECK (name IN ('credits', 'of_base', 'of_model')),
    weight REAL NOT NULL CHECK (weight >= 0),
    weight_squares REAL NOT NULL CHECK (weight_squares >= 0),
    total REAL NOT NULL,
    squares REAL NOT NULL CHECK (squares >= 0)
) STRICT;
CREATE TABLE shown_lists (
    source TEXT PRIMARY KEY CHECK (source IN ('base', 'model', 'interleaved')),
    lists INTEGER NOT NULL CHECK (lists >= 0),                     -- that were recorded
    clicked INTEGER NOT NULL CHECK (clicked BETWEEN 0 AND lists),  -- with a click
    reciprocal_ranks REAL NOT NULL CHECK (reciprocal_ranks BETWEEN 0 AND clicked)  -- of the first clicks, in sum
) STRICT;
-- How many steps of unlearning jobs were answered on the newest day that there was one. Each click has its own count.
CREATE TABLE answered_steps (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    day INTEGER NOT NULL,  -- by the device's clock, since the epoch, UTC; it never goes back
    steps INTEGER NOT NULL CHECK (steps > 0)
) STRICT;
-- Which erasures stood for which jobs that were answered.
CREATE TABLE named_erasures (
    audit_seq INTEGER NOT NULL,  -- of the entry of the federation's audit log
    audit_hash BLOB NOT NULL CHECK (length(audit_hash) = 32),
    job INTEGER NOT NULL,
    PRIMARY KEY (audit_seq, audit_hash, job)
) STRICT, WITHOUT ROWID;
-- The older model that the newest is compared with (`foltr.edge_client.votes`).
CREATE TABLE anchor (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    version INTEGER NOT NULL CHECK (version >= 0),
    hash BLOB NOT NULL CHECK (length(hash) = 16),
    announcement BLOB NOT NULL  -- as it came
) STRICT;
-- What is known of that, as the sums of `foltr.core.learning.comparison.Comparison`; no list is kept for it.
CREATE TABLE comparison (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    anchor_version INTEGER NOT NULL CHECK (anchor_version >= 0),
    anchor_hash BLOB NOT NULL CHECK (length(anchor_hash) = 16),
    n_lists REAL NOT NULL CHECK (n_lists >= 0),
    weight REAL NOT NULL CHECK (weight >= 0),
    difference REAL NOT NULL,
    square_weight REAL NOT NULL CHECK (square_weight >= 0),
    square_difference REAL NOT NULL,
    square_difference_square REAL NOT NULL CHECK (square_difference_square >= 0)
) STRICT;
"""
# By the version of a store that has less.
UPGRADES: Final = {
    1: (
        """ALTER TABLE interactions ADD COLUMN source TEXT NOT NULL DEFAULT 'base'
            CHECK (source IN ('base', 'model', 'interleaved'))""",
        "ALTER TABLE interactions ADD COLUMN recorded_at INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE interactions ADD COLUMN credit REAL CHECK (credit BETWEEN -1 AND 1)",
    )
}
# Apart, so that a store made before there was this table gets it, too.
RECENT_LISTS: Final = """
CREATE TABLE IF NOT EXISTS recent_lists (
    number INTEGER PRIMARY KEY,
    serp_id TEXT NOT NULL UNIQUE,
    shown_at INTEGER NOT NULL,  -- by the device's clock, in seconds since the epoch
    n_documents INTEGER NOT NULL CHECK (n_documents >= 0),
    features BLOB,              -- as in interactions; NULL once recorded
    ranking BLOB NOT NULL,      -- as in interactions, like the next ones
    model_version INTEGER,
    reversals BLOB NOT NULL,
    log_probability REAL NOT NULL,
    variant INTEGER NOT NULL,
    source TEXT NOT NULL CHECK (source IN ('base', 'model', 'interleaved')),
    to_credit BLOB,             -- one signed byte a shown document: whose click it is, of an interleaved list
    base_positions BLOB,        -- little-endian int64: each shown document's place in the application's order
    schema_hash BLOB CHECK (length(schema_hash) = 32),
    clicks BLOB,                -- what was recorded so far, one byte a shown document; NULL: nothing yet
    nth INTEGER,                -- which of its source's lists it was for the gate; NULL: not judged
    CHECK ((features IS NULL) = (clicks IS NOT NULL))
) STRICT;
"""
