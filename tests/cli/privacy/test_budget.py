"""``foltr privacy budget``: what a store's ledger says, in words and as JSON."""

import json

import numpy as np
import pytest
from cli.commands import foltr
from support.device_stores import stored
from support.secure_policies import policy

from foltr.core.protocol.policies import allowance_of
from foltr.core.secure.accounting import epsilon_of
from foltr.edge_client.store.bounds import PendingUpdate
from foltr.edge_client.store.ledger import LedgerEntry
from foltr.edge_client.store.store import UNNUMBERED, Interaction
from foltr.edge_client.store.store_file import MetaKey

FIRST, SECOND = policy(), policy(version=2, k=40)
RHO = allowance_of(FIRST.policy).charge.rho


def take_part(store, signed, number, round_):
    """One participation, of one interaction, that counts."""
    arrays = np.ones((1, 2), np.float32), np.zeros(1, np.int64), np.ones(1, np.bool_)
    shown: Interaction = store.add_interaction(f"{number}", Interaction(UNNUMBERED, *arrays))
    entry = LedgerEntry(number, allowance_of(signed.policy).charge, round_, signed.policy.version, signed.hash)
    through = store.watermark() + 1
    store.put_update(PendingUpdate(f"{number}", round_, store.watermark(), through, b"u"), [shown.id], charged=entry)
    store.settle(through)


@pytest.fixture
def path(tmp_path):
    """The store of a device that took part twice under one policy, and once under another; before it, five times."""
    path = tmp_path / "device-7.sqlite"
    with stored(path) as store:
        store.put_policy(FIRST.signed)
        store.settle(5)
        take_part(store, FIRST, 1, 3)
        take_part(store, FIRST, 2, 5)
        store.put_policy(SECOND.signed)
        take_part(store, SECOND, 3, 9)
    return path


def test_a_budget_in_words(path):
    """Who, how much in all, under which policies, and what is left under the newest."""
    done = foltr("privacy", "budget", "--store", path, code=0)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("mail/device-7: 3 participations, epsilon ")
    assert " (delta 1e-06; replace: " in lines[0]
    assert lines[1].startswith(f"  policy 1 ({FIRST.hash.hex()[:16]}): 2 participations, rho ")
    assert lines[2].startswith(f"  policy 2 ({SECOND.hash.hex()[:16]}): 1 participations, rho ")
    assert lines[3].startswith("Left under policy 2: 35 of 40 participations, epsilon ")
    assert lines[3].endswith(" of 8")
    assert lines[4] == (
        "The federator counts 8 participations, 5 more than this store. If an earlier store of this client "
        "was lost, its helpers count these, too. If not, a federator has lied, and nothing is charged"
    )


def test_a_budget_as_json(path):
    """The same as numbers, which add up."""
    budget = json.loads(foltr("privacy", "budget", "--store", path, "--json").stdout)
    later = allowance_of(SECOND.policy).charge.rho
    assert (budget["participations"], budget["claimed_by_federator"]) == (3, 8)
    assert budget["rho"] == pytest.approx(2 * RHO + later)
    assert budget["epsilon"] == pytest.approx(epsilon_of(budget["rho"], 1e-6))
    assert budget["replace_epsilon"] == pytest.approx(epsilon_of(4 * budget["rho"], 1e-6))
    assert budget["pure_epsilon"] is None
    assert [one["participations"] for one in budget["policies"]] == [2, 1]
    assert [one["version"] for one in budget["policies"]] == [1, 2]
    assert budget["left"]["epsilon"] == pytest.approx(8.0 - budget["epsilon"])
    assert (budget["left"]["participations"], budget["left"]["of_participations"]) == (35, 40)


def test_the_budget_of_norm_proofs(tmp_path):
    """What they cost is in the epsilon and beside it; with a delta that they have spent there is no epsilon."""
    proven, small = policy(proofs=True), policy(version=2, delta=1e-12)
    path, budgets = tmp_path / "device-7.sqlite", []
    for signed in (proven, small):
        with stored(path) as store:
            store.put_policy(signed.signed)
            if signed is proven:
                store.settle(0)
                take_part(store, proven, 1, 3)
            charge = store.spent().charge
        budgets.append(json.loads(foltr("privacy", "budget", "--store", path, "--json").stdout))
    assert (budgets[0]["proof_rho"], budgets[0]["proof_delta"]) == (charge.proof_rho, 2.0**-39)
    assert budgets[0]["epsilon"] == pytest.approx(epsilon_of(charge.rho, 1e-6 - 2.0**-39))
    left = budgets[1]["left"]
    assert (budgets[1]["epsilon"], left["participations"], left["epsilon"]) == (None, 0, 0.0)


def test_to_look_changes_nothing_and_of_who_was_forgotten_the_totals_are_there(path):
    """The device goes on with the same store; whose the totals are is not there any more."""
    with stored(path) as store:
        before = store.entries()
    for _ in range(2):
        foltr("privacy", "budget", "--store", path, code=0)
    with stored(path) as store:
        assert (store.entries(), store.watermark(), store.meta(MetaKey.POLICY)) == (before, 8, SECOND.signed)
        rho = store.spent().charge.rho
        store.forget()
    budget = json.loads(foltr("privacy", "budget", "--store", path, "--json").stdout)
    assert (budget["owner"], budget["participations"], budget["left"]) == (None, 3, None)
    assert budget["rho"] == pytest.approx(rho)
    done = foltr("privacy", "budget", "--store", path)
    assert done.stdout.startswith("a client that was forgotten: 3 participations")
    assert "takes part in no secure sum" in done.stdout


def test_what_is_no_store_is_refused_in_words(tmp_path, path):
    """No file, something else, and a store that a device has open; a new one has spent nothing."""
    foltr("privacy", "budget", "--store", tmp_path / "none.sqlite", code=2)
    other = tmp_path / "other.sqlite"
    for content, code, said in ((b"", 2, "not a device's store"), (b"not a database at all" * 100, 1, "error: ")):
        other.write_bytes(content)
        assert said in foltr("privacy", "budget", "--store", other, code=code).stderr
    with stored(path):
        assert "has it open" in foltr("privacy", "budget", "--store", path, code=1).stderr
    with stored(tmp_path / "new.sqlite"):
        pass
    done = foltr("privacy", "budget", "--store", tmp_path / "new.sqlite")
    assert done.stdout.startswith("mail/device-7: 0 participations, epsilon 0 ")
