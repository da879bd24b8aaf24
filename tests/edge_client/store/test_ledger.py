"""The ledger in a device's store: charged once, with the update that is stored, and for life."""

import contextlib
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from support.device_stores import waiting_ids
from support.secure_policies import policy

from foltr.core.errors import DataError
from foltr.core.protocol.policies import allowance_of
from foltr.core.secure.ledger import Spent
from foltr.edge_client.store.bounds import PendingUpdate
from foltr.edge_client.store.ledger import LedgerEntry
from foltr.edge_client.store.store import UNNUMBERED, DeviceStore, Interaction
from foltr.edge_client.store.store_file import MetaKey

FIRST, SECOND = policy(), policy(version=2, k=200)
ALLOWANCE = allowance_of(FIRST.policy)
FEATURES, RANKING, CLICKS = np.ones((1, 2), np.float32), np.zeros(1, np.int64), np.ones(1, np.bool_)


@contextlib.contextmanager
def opened(path, signed=FIRST, watermark=0, max_interactions=100):
    limits = {"max_interactions": max_interactions, "max_kept": 5}
    store = DeviceStore(path, client_id="device-7", federation="mail", **limits)
    if signed is not None and store.meta(MetaKey.POLICY) is None:
        store.put_policy(signed.signed)
    if store.watermark() is None and not store.forgotten:
        store.settle(watermark)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def store(path):
    with opened(path) as store:
        yield store


def add(store, *serp_ids):
    return [
        store.add_interaction(serp_id, Interaction(UNNUMBERED, FEATURES, RANKING, CLICKS)).id for serp_id in serp_ids
    ]


def entry(number, signed=FIRST, round_=1):
    charge = allowance_of(signed.policy).charge
    return LedgerEntry(number, charge, round_, signed.policy.version, signed.hash)


def take_part(store, name, *, number=None, signed=FIRST, round_=1, local_state=None, ids=None):
    number = store.spent().last + 1 if number is None else number
    ids = add(store, f"{name}-a", f"{name}-b") if ids is None else ids
    through = max(number, store.watermark() + 1)
    update = PendingUpdate(name, round_, store.watermark(), through, name.encode(), local_state)
    store.put_update(update, ids, charged=entry(number, signed, round_))
    return update


def test_a_participation_is_charged_with_the_update_that_is_stored(path):
    """Both are there after a restart, with the round and the policy it was under."""
    with opened(path) as store:
        take_part(store, "u", round_=7)
    with opened(path) as store:
        assert store.entries() == [entry(1, round_=7)]
        assert store.pending_update().payload == b"u"
        assert store.spent() == Spent(1, ALLOWANCE.charge)


def test_an_update_that_is_not_stored_is_not_charged(store):
    """The watermark is another one, the clicks are not those that wait, or the number is not the ledger's next."""
    ids = add(store, "a", "b")
    for update, of, charged in (
        (PendingUpdate("u", 1, 5, 6, b"u"), ids, entry(6)),
        (PendingUpdate("u", 1, 0, 1, b"u"), ids[1:], entry(1)),
    ):
        with pytest.raises(DataError, match="not what counts"):
            store.put_update(update, of, charged=charged)
    assert (store.entries(), waiting_ids(store)) == ([], ids)
    take_part(store, "u", ids=ids)
    store.settle(0, "u")
    ids = add(store, "c", "d")
    for number in (1, 3):
        with pytest.raises(DataError, match=f"participation {number} does not follow 1"):
            take_part(store, f"v{number}", number=number, ids=ids)
    assert (len(store.entries()), waiting_ids(store), store.pending_update()) == (1, ids, None)


@pytest.mark.parametrize(
    ("signed", "charged"),
    [(FIRST, None), (FIRST, entry(1, SECOND)), (None, entry(1))],
    ids=["not charged", "under another policy", "without a policy"],
)
def test_nothing_is_stored_that_is_not_charged_under_the_policy(path, signed, charged):
    """So a raw update is not even stored to be sent; and without a policy nothing tells the price."""
    with opened(path, signed) as store:
        ids = add(store, "a")
        with pytest.raises(DataError, match="not charged under the policy"):
            store.put_update(PendingUpdate("u", 1, 0, 1, b"u"), ids, charged=charged)
        assert (store.pending_update(), store.entries(), waiting_ids(store)) == (None, [], ids)


@pytest.mark.parametrize("watermark", [0, 1], ids=["given up", "counted"])
def test_what_was_sent_stays_charged_and_is_never_learned_again(path, watermark):
    """Nor does a method forget it: its clicks are spent, whether the update counts, came late or counts no longer."""
    with opened(path) as store:
        take_part(store, "u", local_state=b"one")
        settlement = store.settle(watermark, "u")
        assert (settlement.counted, settlement.given_up) == (watermark == 1, watermark == 0)
        store.settle(0)  # its round was abandoned
        assert (waiting_ids(store), store.kept_ids(), store.spent().last) == ([], [], 1)
        assert store.rows("SELECT count(*) FROM interactions") == [(0,)]
        assert store.local_state() == b"one"
    with opened(path) as store:
        assert (waiting_ids(store), store.spent().last, store.local_state()) == ([], 1, b"one")


def test_marks_of_participations_are_not_numbers_of_interactions(path):
    """A watermark above, or below, the numbers of what waits neither counts nor numbers any of it."""
    with opened(path, watermark=40, max_interactions=3) as store:
        ids = add(store, "a", "b", "c")
        assert (ids, waiting_ids(store)) == ([1, 2, 3], [1, 2, 3])
        take_part(store, "u", ids=ids[:2])
        assert (store.pending_update().through, store.spent().last) == (41, 1)
        store.settle(41, "u")
        assert waiting_ids(store) == [3]
        store.settle(2)
        assert waiting_ids(store) == [3]
        assert add(store, "d", "e", "f") == [4, 5, 6]
        assert waiting_ids(store) == [4, 5, 6], "the oldest that waits makes room"


def test_being_forgotten_leaves_of_the_ledger_its_totals(path):
    """How many participations there were and what they cost; neither rounds nor policies."""
    with opened(path) as store:
        for i in (1, 2, 3):
            take_part(store, f"u{i}", round_=i)
            store.settle(i)
        spent = store.spent()
        store.forget()
    with opened(path, None) as store:
        assert store.forgotten
        assert store.entries() == [LedgerEntry(3, spent.charge)]
        assert store.spent() == spent
        assert store.meta(MetaKey.POLICY) is None


def test_totals_that_are_not_pure_stay_so(path):
    """Forgetting must not make a pure epsilon of a sum that has none."""
    gamma = policy(gamma=True)
    with opened(path, gamma) as store:
        take_part(store, "u", signed=gamma)
        store.settle(1)
        assert store.spent().charge.epsilon is not None
        store.put_policy(SECOND.signed)
        take_part(store, "v", signed=SECOND)
        spent = store.spent()
        store.forget()
        assert store.spent() == replace(spent, charge=replace(spent.charge, epsilon=None))


@pytest.mark.parametrize("gamma", [False, True], ids=["gaussian", "gamma"])
def test_norm_proofs_are_charged_with_the_noise(path, gamma):
    """Their rho and delta are stored, outlive a restart and being forgotten, and add up with what had none."""
    proven = policy(version=2, gamma=gamma, proofs=True)
    charge = allowance_of(proven.policy).charge
    with opened(path) as store:
        take_part(store, "u")
        store.settle(1)
        store.put_policy(proven.signed)
        for name in ("v", "w", "x"):
            take_part(store, name, signed=proven)
            store.settle(store.spent().last)
        assert store.entries() == [entry(1), *(entry(number, proven) for number in (2, 3, 4))]
    with opened(path) as store:
        spent = store.spent()
        assert spent.charge.proof_rho == pytest.approx(3 * charge.proof_rho)
        assert spent.charge.delta == 3 * 2.0**-39
        store.forget()
    with opened(path, None) as store:
        assert store.spent() == spent


def test_the_first_policy_gives_up_the_raw_update_that_is_pending(path):
    """It may not be sent any more, and what it was made of is spent: it may have been seen."""
    with opened(path, None) as store:
        counted = add(store, "a", "b")
        store.put_update(PendingUpdate("u", 1, 0, 2, b"u", b"one"), counted)
        store.settle(2, "u")
        sent = add(store, "c")
        store.put_update(PendingUpdate("v", 2, 2, 3, b"v", b"two"), sent)
        waits = add(store, "d")
        store.put_policy(FIRST.signed)
        assert store.watermark() is None, "the one of interactions is none of participations"
    with opened(path, watermark=0) as store:
        assert store.pending_update() is None
        assert (waiting_ids(store), store.kept_ids(), store.local_state()) == (waits, [], b"two")
        assert store.spent() == Spent()


def test_a_newer_policy_gives_up_what_is_pending_under_the_older(store):
    """Its bytes are not sent again; it stays charged."""
    take_part(store, "u")
    store.put_policy(SECOND.signed)
    assert (store.pending_update(), store.meta(MetaKey.POLICY), store.watermark()) == (None, SECOND.signed, 0)
    assert store.spent().last == 1


def test_rows_that_make_no_sense_are_refused_by_the_table(path):
    """A charge of nothing, a number of zero, a round without its policy, proofs that cost all or no delta."""
    with opened(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as database:
        for values in (
            "(0, 1, 1, zeroblob(32), 1.0, NULL, 0, 0)",
            "(1, 1, 1, zeroblob(32), 0.0, NULL, 0, 0)",
            "(1, 1, NULL, NULL, 1.0, NULL, 0, 0)",
            "(1, 1, 1, zeroblob(32), 1.0, NULL, 1.0, 1e-12)",
            "(1, 1, 1, zeroblob(32), 1.0, NULL, 0.1, 0)",
            "(1, 1, 1, zeroblob(32), 1.0, NULL, 0.1, -1.0)",
        ):
            with pytest.raises(sqlite3.IntegrityError):
                database.execute(f"INSERT INTO participations VALUES {values}")  # noqa: S608
