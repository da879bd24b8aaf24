"""``foltr demo-forget``: a device harms the model and asks to be forgotten. Then all places are searched for traces."""

import asyncio
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from foltr.broker.address import BrokerAddress
from foltr.cli.demo import Demo, ndcg_of
from foltr.cli.output import print_rows
from foltr.cli.settings import Settings
from foltr.core.errors import SettingsError
from foltr.core.evaluation.click_models import click_model
from foltr.core.numerics.streams import client_streams
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.signing import key_to_text
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Connection, Experiment, Privacy, Ranking
from foltr.edge_client.simulated_user import SimulatedUser
from foltr.federator.job import UnlearningPolicy
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.service import FederatorService
from foltr.storage.database import Database
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.models import get_model, latest_model
from foltr.storage.rounds import find_round
from foltr_research.cli.demos.departure import FORGET_S, Departure, Place, check_receipt, hand_over
from foltr_research.cli.demos.leaver import GIVE_UP_S, LeavingDevice, Z, expected_ndcg
from foltr_research.cli.demos.progress import always, say, wait_until, watch
from foltr_research.cli.demos.residue import (
    at_broker,
    in_database,
    in_files,
    sqlite_files,
    stored_updates,
    traces_of,
)
from foltr_research.simulation.clients.population import client_name

if TYPE_CHECKING:
    from foltr.core.data.sources import LoadedData
    from foltr.core.methods.registry import Ranker
    from foltr.core.protocol.trainings import Training

T = TypeVar("T")

_METHODS = ("fpdgd", "fedprox")
# A round ends when all have sent. After this time without a device it ends without a model.
_ROUND_S = 60.0
_SETTLE_S = 20.0
# The number of newest updates to search for, in the forms in which they were sent and stored.
_REMEMBERED = 20


class ForgettingDemo(Demo):
    """A `Demo` with one device that harms the model and then leaves, and with proof that it is erased."""

    def __init__(self, settings: Settings, n_clients: int, n_rounds: int, broker_url: str | None) -> None:
        if n_clients < 2:
            raise SettingsError(
                "clients: 1; at least 2 are needed, because the others learn without the one that leaves"
            )
        if settings.learning.method not in _METHODS:
            raise SettingsError(f"method: {settings.learning.method}; this demonstration needs {' or '.join(_METHODS)}")
        super().__init__(settings, n_clients, n_rounds, broker_url)
        self._departure: Departure | None = None

    async def _federate(
        self,
        data: "LoadedData",
        training: "Training",
        ranker: "Ranker",
        database: Database,
        address: BrokerAddress,
    ) -> None:
        name = f"leaver-{secrets.token_hex(4)}"
        names = [*(client_name(i) for i in range(1, self._n_clients)), name]
        federator_key, enrolment_key, credentials = self._enrol(names, address)
        plan = FederationPlan(
            self._settings.federation,
            data.train.n_features,
            # All devices in every round, as in the simulator, so that the figures are comparable.
            RoundPolicy(self._n_clients, self._n_clients, 0.0, _ROUND_S),
            training,
            chosen_ranker=ranker,
            seed=self._settings.devices.seed,
            enrolment_key=enrolment_key,
            unlearning=UnlearningPolicy(interval=2, every_s=0.5, swap_every_s=0.0, step_s=10.0, patience_s=FORGET_S),
        )
        service = FederatorService(plan, database, address, key=federator_key, give_up_after_s=GIVE_UP_S)
        simulating = asyncio.to_thread(expected_ndcg, self._settings, training, data, self._n_clients, self._n_rounds)
        ndcg: dict[str, float | None] = {**await watch(simulating, always("simulating the expected results"))}
        with tempfile.TemporaryDirectory(prefix="foltr-demo-") as folder:
            store = Path(folder, "leaver.sqlite")
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(service.run())
                async with AsyncExitStack() as stack:
                    leaver, users = await self._devices(stack, credentials, store, data)
                    say(f"{self._n_rounds} rounds of {len(users)} devices; {name} sends -{Z:g} times its own model")
                    await watch(self._train(users, database), lambda: self._round_so_far(data, ranker, database))
                    model = await latest_model(database, plan.federation)
                    if model is None:
                        raise RuntimeError("a federation without a model")
                    ndcg["poisoned"] = ndcg_of(model, ranker, data)
                    traces = await self._traces(leaver, credentials[name], database)
                    before = await watch(self._residue(database, address, store, traces), always("searching"))
                    say(f"The model is poisoned: nDCG@10 {ndcg['poisoned']:.4f}. {name} asks to be forgotten by MQTT")
                    result = await watch(leaver.forget_me(timeout_s=FORGET_S), lambda: self._job_so_far(database))
                    await watch(self._let_go(database), always("letting go of its name"))
                service.stop()
                await serving
            await watch(wait_until(database.vacuum, _SETTLE_S), always("rewriting the database"))
            after = await watch(self._residue(database, address, store, traces), always("searching once more"))
        receipt = check_receipt(result, federator_key.public, plan.federation)
        version = None if receipt is None else receipt.model_after
        model = None if version is None else await get_model(database, plan.federation, version)
        ndcg["unlearned"] = None if model is None else ndcg_of(model, ranker, data)
        self._departure = Departure(name, federator_key.public, result, receipt, before, after, ndcg)

    # --- parts of it ----------------------------------------------------------------------------------------

    async def _devices(
        self, stack: AsyncExitStack, credentials: Mapping[str, Credentials], store: Path, data: "LoadedData"
    ) -> tuple[LeavingDevice, list[SimulatedUser]]:
        """Return the leaver (the last device) and the users of all, who draw as the simulator's clients do."""
        leaver, users = None, []
        for i, own in enumerate(credentials.values(), start=1):
            streams = client_streams(self._settings.devices.seed, client_name(i))
            device: EdgeClient
            if i < self._n_clients:
                device = EdgeClient(
                    own,
                    store=":memory:",
                    experiment=Experiment(seed=streams.device_seed),
                    ranking=Ranking(gate=False),
                    privacy=Privacy(click_window_s=0.0),
                    connection=Connection(give_up_after_s=GIVE_UP_S),
                )
            else:
                device = leaver = LeavingDevice(own, store, streams.device_seed)
            await stack.enter_async_context(device)
            clicks = click_model(self._settings.devices.clicks, data.n_grades)
            users.append(SimulatedUser(device, data.train, clicks, streams.user))
        if leaver is None:
            raise RuntimeError("no device leaves")
        return leaver, users

    async def _train(self, users: Sequence[SimulatedUser], database: Database) -> None:
        async with asyncio.TaskGroup() as group:
            for user in users:
                taking_part = user.take_part(
                    self._settings.learning.interactions, n_rounds=self._n_rounds, round_timeout_s=2 * _ROUND_S
                )
                group.create_task(taking_part)

        async def is_over() -> bool:
            row = await find_round(database, self._settings.federation, self._n_rounds)
            return row is not None and row.closed_at is not None

        await wait_until(is_over, 2 * _ROUND_S)

    async def _round_so_far(self, data: "LoadedData", ranker: "Ranker", database: Database) -> str:
        model = await latest_model(database, self._settings.federation)
        if model is None:
            return "the federation begins"
        ndcg = await asyncio.to_thread(ndcg_of, model, ranker, data)
        return f"round {model.round or 0}/{self._n_rounds}  nDCG@10 {ndcg:.4f}"

    async def _job_so_far(self, database: Database) -> str:
        jobs = await list_jobs(database, self._settings.federation)
        if not jobs:
            return "its data is being erased"
        job = jobs[-1]
        return f"unlearning, {job.strategy}: step {job.step}/{job.n_steps}"

    async def _traces(self, leaver: LeavingDevice, own: Credentials, database: Database) -> tuple[bytes, ...]:
        """Return the bytes to search for, collected while they exist."""
        federation = self._settings.federation
        data_key = None if database.keys is None else database.keys.find(federation, own.name)
        stored = await stored_updates(database, federation, own.name)
        updates = [*leaver.sent[-_REMEMBERED:], *stored[-_REMEMBERED:]]
        return traces_of(own.name, own.key.public, () if data_key is None else (data_key,), updates)

    async def _let_go(self, database: Database) -> None:
        """Wait until the federator has notified the leaver and deleted its name."""

        async def is_nameless() -> bool:
            rows = await list_erasures(database, self._settings.federation)
            return not any(row.client_id for row in rows)

        await wait_until(is_nameless, _SETTLE_S)

    async def _residue(
        self, database: Database, address: BrokerAddress, store: Path, traces: tuple[bytes, ...]
    ) -> dict[str, int]:
        """Return the bytes of the leaver, by place."""
        keys = [] if database.keys is None else [database.keys.folder]
        return {
            "database": await in_database(database, traces),
            "data keys": await asyncio.to_thread(in_files, keys, traces),
            "its own store": await asyncio.to_thread(in_files, sqlite_files(store), traces),
            "broker": await at_broker(address, self._settings.federation, traces),
        }

    async def _report(
        self,
        data: "LoadedData",
        ranker: "Ranker",  # noqa: ARG002 (as in the base class)
        database: Database,
        seconds: float,
    ) -> dict[str, Any]:
        departure = self._departure
        if departure is None:
            raise RuntimeError("nobody left")
        n_others = self._n_clients - 1
        told = {
            "honest": f"without the harm: the model of {self._n_clients} honest devices (simulated)",
            "poisoned": f"the harm: the model in service when {departure.name} asked to be forgotten",
            "unlearned": f"the recovery: the model in service since, recomputed by the {n_others} others",
            "retrained": f"the reference: the model of the {n_others} others, had it never been there (simulated)",
        }
        say("How well the model ranks held-out queries (nDCG@10; 1 is perfect)")
        for which, words in told.items():
            say(f"  {'-' if (ndcg := departure.ndcg[which]) is None else f'{ndcg:.4f}'}  {words}")
        receipt = departure.receipt
        if receipt is not None:
            coverage = "-" if receipt.coverage is None else f"{receipt.coverage:.2f}"
            say(
                f"Receipt: verified with the federator's key {key_to_text(departure.federator_key)}: "
                f"{receipt.n_updates} updates erased, {receipt.models_withdrawn} models withdrawn; {receipt.strategy}, "
                f"{receipt.rounds_replayed} steps, coverage {coverage}"
            )
        places = [Place(place, departure.before[place], found) for place, found in departure.after.items()]
        print_rows(places, ("place", "before", "after"), title=f"Bytes of {departure.name}", as_json=False)
        if database.dialect != "sqlite":
            say("Only the database's rows were searched; the server's files keep deleted data for some time")
        self._look_further("erasure verify-log", "models list", "rounds list")
        hand_over(departure, self._settings.db_url)
        return {"forget": departure.plain(), **self._circumstances(data, seconds)}
