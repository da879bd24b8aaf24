"""A job that asks nobody: the stored rounds once more, without who leaves."""

import contextlib
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from databases import open_migrated
from served import GENEROUS, Served

import foltr.federator.job_driver
from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.erasure.receipt import verify_receipt
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.membership import Forget
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import JobState, Strategy
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import EvolutionTraining
from foltr.core.protocol.updates import DenseDelta, EvolutionPair
from foltr.federator.closing import removal
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import counterfactual
from foltr.federator.job import UnlearningPolicy
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.keys import KeyStore
from foltr.storage.models import get_model, latest_model
from foltr.storage.queries import list_rounds
from foltr.storage.retention import delete_old_bodies

N_FEATURES = 4
KEY = SigningKey(b"federator" + bytes(23))
NAMES = ("alice", "bob", "carol", "dave")
# Of so few rounds whoever leaves was a large part.
REMOVE = UnlearningPolicy(
    Strategy.FED_REMOVE, most_change=1e9, every_s=0.0, swap_every_s=0.0, step_s=10.0, patience_s=30.0
)
N_ROUNDS = 5


def delta_of(number: int, name: str):
    rng = np.random.default_rng([number, NAMES.index(name)])
    return DenseDelta(dim=N_FEATURES, values=pack_vector(rng.normal(size=N_FEATURES).astype(np.float32)))


@pytest.fixture
async def federation(tmp_path, unsigned):
    """Starts actors, each on a database of its own unless it is to take over, and has devices join."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(names=NAMES, *, rule="mean", unlearning=REMOVE, least=1, most=None, database="", **plan):
            keys = KeyStore(tmp_path / f"keys{database}")
            db = await stack.enter_async_context(
                await open_migrated(f"sqlite:///{tmp_path}/foltr{database}.sqlite", keys)
            )
            policy = RoundPolicy(least, most or len(names), 0.0, 60.0, rule=read_rule(rule))
            served = Served(
                db, FederationPlan("mail", N_FEATURES, policy, unlearning=unlearning, **plan), GENEROUS, KEY
            )
            await served.actor.start()
            stack.push_async_callback(served.actor.close)
            return served

        async def join(*args, names=NAMES, **options):
            served = await start(names, *args, **options)
            devices = {name: unsigned(name) for name in names}
            await served.join(devices.values())
            return served, devices

        join.again = start
        yield join


async def play(served, devices, numbers, body_of=delta_of):
    """Rounds in which each sends what is its own in that round; each is full once all have sent."""
    for number in numbers:
        base = (await latest_model(served.db, "mail")).version
        for name, device in devices.items():
            served.update(device, number, base, body=body_of(number, name))
        await served.turn()


async def forget(served, device, n_turns=20):
    served.receive(device, ClientTopic.FORGET, Forget(federation="mail", client_id=device.client_id))
    for _ in range(n_turns):
        await served.turn()


async def made_without(federation, body_of=delta_of, **options):
    """The model of a federation in which the others send the same, and dave never was; its seed is the same."""
    served, devices = await federation(names=NAMES[:3], database="-without", **options)
    await play(served, devices, range(1, N_ROUNDS + 1), body_of)
    return await latest_model(served.db, "mail")


def pair_of(number: int, name: str):
    return EvolutionPair(seed=10 * number + NAMES.index(name), plus=0.9, minus=0.1 * NAMES.index(name))


WAYS = {
    "mean": {},
    "median": {"rule": "median"},
    "foltr-es": {"training": EvolutionTraining()},
}


async def receipt_of(served):
    (row,) = await list_erasures(served.db, "mail")
    return verify_receipt(row.receipt, KEY.public)


@pytest.mark.parametrize("at_once", [1, 7, 1000])
@pytest.mark.parametrize("way", WAYS)
async def test_it_is_bit_for_bit_what_the_others_updates_make(federation, monkeypatch, way, at_once):
    """Also of a method that learns nothing from kept lists, and has moments; whatever the slices. Nobody is asked."""
    monkeypatch.setattr(removal, "_UPDATES_AT_ONCE", at_once)
    body_of = pair_of if way == "foltr-es" else delta_of
    served, devices = await federation(**WAYS[way])
    await play(served, devices, range(1, N_ROUNDS + 1), body_of)
    before = await latest_model(served.db, "mail")
    with patch.object(foltr.federator.job_driver.Unlearner, "_announce") as announced:
        await forget(served, devices["dave"])
    newest, others = await latest_model(served.db, "mail"), await made_without(federation, body_of, **WAYS[way])
    assert (newest.version, newest.unlearning_job) == (N_ROUNDS + 1, 1)
    assert newest.weights == others.weights != before.weights
    assert newest.optimizer_state == others.optimizer_state
    announced.assert_not_called()
    receipt = await receipt_of(served)
    assert (receipt.strategy, receipt.rounds_replayed, receipt.coverage) == ("fed_remove", N_ROUNDS, 1.0)
    assert receipt.models_withdrawn == N_ROUNDS


async def test_each_round_is_made_with_the_settings_that_it_was_made_with(federation):
    """They changed with the federator in between, and have changed again since."""
    trainings = [EvolutionTraining(server_learning_rate=rate) for rate in (0.5, 0.25, 0.125)]
    served, devices = await federation(training=trainings[0])
    await play(served, devices, (1, 2), pair_of)
    served = await federation.again(training=trainings[1])
    await play(served, devices, (3, 4), pair_of)
    served = await federation.again(training=trainings[2])
    expected = await counterfactual(served.db, await load_recipes(served.db, "mail"), "dave", 1)
    await forget(served, devices["dave"])
    newest = await latest_model(served.db, "mail")
    assert (newest.unlearning_job, newest.weights) == (1, pack_vector(expected.made))


async def test_it_begins_before_the_client_came(federation):
    """What the others had made until then stays as it is."""
    served, devices = await federation(most=3)
    early = {name: devices[name] for name in NAMES[:3]}
    await play(served, early, (1, 2))
    late = {name: devices[name] for name in NAMES[1:]}
    await play(served, late, (3, 4))
    await forget(served, devices["dave"])
    (job,) = await list_jobs(served.db, "mail")
    assert (job.start_version, job.start_round, job.step, job.n_steps) == (2, 3, 2, 2)
    assert (await get_model(served.db, "mail", 2)).weights
    assert (await get_model(served.db, "mail", 3)).weights == b""


async def test_no_live_round_is_lost(federation):
    """One that ends while the model waits for its moment is in it, too."""
    served, devices = await federation(least=2, most=4)
    await play(served, devices, range(1, N_ROUNDS + 1))
    others = {name: devices[name] for name in NAMES[:3]}
    served.update(others["alice"], N_ROUNDS + 1, N_ROUNDS, body=delta_of(N_ROUNDS + 1, "alice"))
    await forget(served, devices["dave"])
    assert (await latest_model(served.db, "mail")).version == N_ROUNDS  # the open round has an update
    for name in ("bob", "carol"):
        served.update(others[name], N_ROUNDS + 1, N_ROUNDS, body=delta_of(N_ROUNDS + 1, name))
    await served.turn()
    newest = await latest_model(served.db, "mail")
    assert (newest.version, newest.unlearning_job) == (N_ROUNDS + 2, 1)
    (job,) = await list_jobs(served.db, "mail")
    assert (job.last_round, job.step) == (N_ROUNDS + 1, N_ROUNDS + 1)
    again, few = await federation(names=NAMES[:3], database="-without")
    await play(again, few, range(1, N_ROUNDS + 2))
    assert newest.weights == (await latest_model(again.db, "mail")).weights


async def test_a_federator_that_dies_between_two_slices_goes_on(federation, monkeypatch):
    """To the same bits: each slice is stored with all that the next one needs."""
    monkeypatch.setattr(removal, "_UPDATES_AT_ONCE", 1)
    served, devices = await federation(training=EvolutionTraining())
    await play(served, devices, range(1, N_ROUNDS + 1), pair_of)
    n_passed = 0

    def die(name):
        nonlocal n_passed
        n_passed += name is Failpoint.STEP_COMMITTED
        if n_passed == 2:
            raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(foltr.federator.job_driver, "failpoint", die)
        with pytest.raises(OSError, match="killed"):
            await forget(served, devices["dave"])
    (job,) = await list_jobs(served.db, "mail")
    assert (job.state, job.step, job.last_round) == ("running", 2, 2)
    again = await federation.again(NAMES, training=EvolutionTraining())
    for _ in range(10):
        await again.turn()
    newest = await latest_model(again.db, "mail")
    others = await made_without(federation, pair_of, training=EvolutionTraining())
    assert (newest.weights, newest.optimizer_state) == (others.weights, others.optimizer_state)


async def thinned(federation, min_coverage):
    served, devices = await federation(unlearning=replace(REMOVE, min_coverage=min_coverage))
    await play(served, devices, range(1, N_ROUNDS + 1))
    await delete_old_bodies(served.db, "mail", served.actor.epoch, before_round=N_ROUNDS, interval=3)
    await forget(served, devices["dave"])
    return await list_jobs(served.db, "mail")


async def test_what_was_thinned_counts_as_not_covered(federation):
    """Rounds 2 and 3 of five are gone: the others are in, and the coverage says so."""
    (job,) = await thinned(federation, 0.5)
    assert (job.state, job.strategy, job.step, job.coverage) == ("done", "fed_remove", N_ROUNDS, 3 / 5)


async def test_too_thin_a_history_is_learned_anew(federation):
    """As after any other job that covers too little."""
    removed, anew = await thinned(federation, 0.7)
    assert (removed.state, removed.strategy, removed.coverage_sum) == ("failed", "fed_remove", 3)
    assert anew.strategy == "relearn"


async def test_a_round_that_was_its_own_alone_is_nobodys_loss(federation):
    """It is passed over without a word; and where nothing is left the first model serves."""
    served, devices = await federation(most=1)
    await play(served, {"dave": devices["dave"]}, (1,))
    await play(served, {"bob": devices["bob"]}, (2,))
    await play(served, {"dave": devices["dave"]}, (3,))
    await forget(served, devices["dave"])
    (job,) = await list_jobs(served.db, "mail")
    assert (job.step, job.coverage) == (1, 1.0)
    await forget(served, devices["bob"])
    newest = await latest_model(served.db, "mail")
    assert newest.weights == bytes(4 * N_FEATURES)
    assert {row.state for row in await list_erasures(served.db, "mail")} == {"done"}


async def test_what_cannot_be_read_is_left_out(federation):
    """A lost key costs the updates that were sealed with it, and no more."""
    served, devices = await federation()
    await play(served, devices, range(1, N_ROUNDS + 1))
    served.db.keys.destroy("mail", "carol")
    await forget(served, devices["dave"])
    again, few = await federation(names=NAMES[:2], database="-without")
    await play(again, few, range(1, N_ROUNDS + 1))
    assert (await latest_model(served.db, "mail")).weights == (await latest_model(again.db, "mail")).weights
    for name in NAMES[:2]:
        served.db.keys.destroy("mail", name)


async def test_it_catches_up_however_fast_rounds_are(federation, monkeypatch):
    """With a live round in every turn, and slices of no more than that, none is lost and none is waited for."""
    monkeypatch.setattr(removal, "_UPDATES_AT_ONCE", 6)
    served, devices = await federation(most=3)
    everybody, others = {**devices}, {name: devices[name] for name in NAMES[:3]}
    del everybody["alice"]
    await play(served, everybody, range(1, N_ROUNDS + 1))
    served.receive(devices["dave"], ClientTopic.FORGET, Forget(federation="mail", client_id="dave"))
    for _ in range(40):
        newest = (await list_rounds(served.db, "mail"))[-1]
        for name, device in others.items():
            served.update(device, newest.round, newest.base_version, body=delta_of(newest.round, name))
        await served.turn()
        (job,) = await list_jobs(served.db, "mail")
        if job.state == "done":
            break
    assert job.state == "done"
    assert job.step == job.last_round > N_ROUNDS


async def test_a_removal_that_changes_too_much_makes_way_for_learning_anew(federation):
    """What the others sent was against the one that left; so they are asked, and the receipt names what was done."""
    served, devices = await federation(unlearning=replace(REMOVE, most_change=0.3))
    await play(served, devices, range(1, N_ROUNDS + 1))
    served.clock.at += 1.0
    await forget(served, devices["dave"], n_turns=6)
    removal_, relearning = await list_jobs(served.db, "mail")
    assert (removal_.strategy, removal_.state) == (Strategy.FED_REMOVE, JobState.FAILED)
    assert "more than 0.3; the job begins again as relearn" in removal_.reason
    assert (relearning.strategy, relearning.state) == (Strategy.RELEARN, JobState.RUNNING)
    assert served.retained.topics["foltr/v1/mail/unlearning/round"].job == relearning.number


async def test_a_removal_that_changes_little_is_fit_for_service(federation):
    """One of four like the others leaves: nobody is asked."""
    served, devices = await federation(unlearning=replace(REMOVE, most_change=0.3))

    def alike(number, name):
        values = delta_of(number, "alice").values
        own = 0.1 * unpack_vector(delta_of(number, name).values)
        return DenseDelta(dim=N_FEATURES, values=pack_vector(unpack_vector(values) + own))

    await play(served, devices, range(1, N_ROUNDS + 1), alike)
    await forget(served, devices["dave"])
    assert (await receipt_of(served)).strategy == "fed_remove"
