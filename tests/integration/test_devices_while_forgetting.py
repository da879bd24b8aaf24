"""Devices while another is forgotten, in a real federation: none keeps a withdrawn model, and none is an oracle."""

import contextlib
import sqlite3

import numpy as np
import pytest
from integration.deployment import DIM, FEDERATION, on
from support.prepared_processes import with_defaults
from support.waiting import PATIENCE_S, until

from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy, Ranking
from foltr.edge_client.training.unlearning_limits import UnlearningLimits
from foltr.storage.erasure.audit_log import CLIENT_ERASED, stream_audit
from foltr.storage.erasure.unlearning_jobs import list_jobs

N_CLIENTS = 4
OPTIONS = ("--min-clients", "3", "--max-clients", "3")
# Nobody keeps anything: the first model it is, which takes this setting, or an order.
VARIABLES = {
    "FOLTR_UNLEARNING_STRATEGY": "fed_eraser",
    "FOLTR_EXPLORATION": "sampling",
    "FOLTR_UNLEARN_EVERY_S": "0.2",
    "FOLTR_UNLEARNING_MAY_RESET": "true",
    **with_defaults({"foltr.federator.job.UnlearningPolicy": {"swap_every_s": 0.0, "step_s": 0.1}}),
}
N_ROUNDS = 4


def search(client: EdgeClient, rng: np.random.Generator, n_lists: int = 1) -> None:
    """Click what the first feature says."""
    for _ in range(n_lists):
        features = rng.random((6, DIM), dtype=np.float32)
        serp = client.rank(features)
        client.record_clicks(serp, np.flatnonzero(serp.ranking == np.argmax(features[:, 0])).tolist())


@on("postgresql")
async def test_a_quiet_device_uses_the_model_without_the_forgotten(deployment, tmp_path):
    """It is all zeros, as nobody has kept anything to learn again; the device uses it and goes on taking part."""
    deployment.start_federator(10_000, *OPTIONS, **VARIABLES)
    rng = np.random.default_rng(3)
    async with contextlib.AsyncExitStack() as stack:
        leaver, quiet, *others = [
            await stack.enter_async_context(
                EdgeClient(
                    one,
                    store=tmp_path / f"{one.name}.sqlite",
                    privacy=Privacy(keep_interactions=0),
                    experiment=Experiment(seed=i),
                    ranking=Ranking(gate=False),
                )
            )
            for i, one in enumerate(deployment.devices)
        ]
        for number in range(1, N_ROUNDS + 1):
            for client in (leaver, *others):
                await client.next_round(after=number - 1, timeout_s=PATIENCE_S)
                search(client, rng)
        await deployment.rounds_reach(N_ROUNDS)
        await until(lambda: (quiet.model_version or 0) >= N_ROUNDS, "the last model did not come")
        kept = quiet.model_version
        assert (await leaver.forget_me(timeout_s=PATIENCE_S)).state == "forgotten"
        (job, *more) = [one for one in await list_jobs(deployment.database, FEDERATION) if one.state == "done"]
        assert not more
        assert job.model_version is not None
        newest = job.model_version
        await until(lambda: quiet.model_version == newest, "the device keeps a withdrawn model")
        assert newest > kept
        done = await deployment.n_completed()
        for client in (quiet, *others):
            search(client, rng)
        await deployment.rounds_reach(done + 1)


def asked_of(path) -> tuple[list[int], set[tuple[int, bytes]]]:
    """How often each click was learned again by a device, and for the sake of which erasures."""
    with contextlib.closing(sqlite3.connect(path)) as store:
        learned = [row[0] for row in store.execute("SELECT relearned FROM interactions")]
        return learned, set(store.execute("SELECT audit_seq, audit_hash FROM named_erasures"))


@on("sqlite")
@pytest.mark.parametrize("n_clients", [3])
async def test_devices_answer_as_much_as_they_allow(deployment, tmp_path):
    """Two steps of four, as each click is learned in two at most; the job goes on without them.

    They answer for the sake of the erasure that the audit log has.
    """
    # The steps that they do answer end with the answers; the other two last as long as it says.
    steps = {"swap_every_s": 0.0, "step_s": 5.0, "min_coverage": 0.0}
    more = with_defaults({"foltr.federator.job.UnlearningPolicy": steps, "foltr.federator.job.MOST_MISSES": 1})
    deployment.start_federator(10_000, *OPTIONS, **(VARIABLES | more))
    rng, stores = np.random.default_rng(3), [tmp_path / f"{one.name}.sqlite" for one in deployment.devices]
    async with contextlib.AsyncExitStack() as stack:
        leaver, *others = clients = [
            await stack.enter_async_context(
                EdgeClient(
                    one,
                    store=store,
                    experiment=Experiment(seed=i),
                    ranking=Ranking(gate=False),
                    privacy=Privacy(unlearning_limits=UnlearningLimits(steps_a_click=2)),
                )
            )
            for i, (one, store) in enumerate(zip(deployment.devices, stores, strict=True))
        ]
        for number in range(1, N_ROUNDS + 1):
            for client in clients:
                await client.next_round(after=number - 1, timeout_s=PATIENCE_S)
                search(client, rng)
            await deployment.rounds_reach(number)
        for client in others:
            await until(lambda: client.counted_through == N_ROUNDS, "an update does not count")  # noqa: B023
        assert (await leaver.forget_me(timeout_s=PATIENCE_S)).state == "forgotten"
    erased = [entry async for entry in stream_audit(deployment.database, FEDERATION) if entry.kind == CLIENT_ERASED]
    for store in stores[1:]:
        learned, named = asked_of(store)
        assert (max(learned), sum(learned)) == (2, 6)
        assert named == {(entry.seq, bytes.fromhex(entry.hash)) for entry in erased}
