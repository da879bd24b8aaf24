"""``foltr demo --forget``: a device harms the model, asks to be forgotten, and what is left of it is looked for."""

import asyncio
import math
import secrets
import shlex
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from broker.address import BrokerAddress
from edge_client.client import EdgeClient, ForgetResult
from federator.job import UnlearningPolicy
from federator.plan import FederationPlan
from federator.round import RoundPolicy
from federator.service import FederatorService
from foltr.cli.demo.learning_demo import Demo, command_name, ndcg_of
from foltr.cli.demo.leaver import GIVE_UP_S, LeavingDevice, Z, expected_ndcg
from foltr.cli.erasure.residue import at_broker, in_database, in_files, sqlite_files, stored_updates, traces_of
from foltr.cli.fleet.simulated_user import SimulatedUser
from foltr.cli.output import console, print_rows
from foltr.cli.settings import Settings
from foltr.erasure.receipt import ErasureReceipt, verify_receipt
from foltr.errors import DataError, FoltrError, SettingsError
from foltr.evaluation.click_models import click_model
from foltr.numerics.streams import client_streams
from foltr.operator.credentials import Credentials
from foltr.protocol.signing import key_to_text
from foltr.simulation.clients.population import client_name
from storage.database import Database
from storage.erasure.erasures import list_erasures
from storage.erasure.unlearning_jobs import list_jobs
from storage.models import get_model, latest_model
from storage.rounds import find_round

if TYPE_CHECKING:
    from foltr.data.sources import LoadedData
    from foltr.methods.registry import Ranker
    from foltr.protocol.trainings import Training

T = TypeVar("T")

_METHODS = ("fpdgd", "fedprox")
_POLL_S = 0.2
# Where no terminal shows how far it is, a line does, so often.
_LINE_S = 1.5
# A round is over once all have sent; one that waits so long for a device ends without a model.
_ROUND_S = 60.0
_FORGET_S = 600.0
_SETTLE_S = 20.0
# Of the updates so many of the newest are looked for, as they were sent and as they were stored.
_REMEMBERED = 20


@dataclass(frozen=True)
class _Place:
    """Where was looked, and how many bytes of the leaver were there."""

    place: str
    before: int
    after: int


@dataclass
class _Leaving:
    """The one that is to be forgotten, and what became of it.

    Attributes:
        federator_key: public.
        before, after: bytes of it, by place.
        ndcg: on held-out queries, by model.
    """

    name: str
    federator_key: bytes
    result: ForgetResult
    receipt: ErasureReceipt | None
    before: dict[str, int]
    after: dict[str, int]
    ndcg: dict[str, float | None]

    def plain(self) -> dict[str, Any]:
        """As the results have it."""
        receipt = self.receipt
        return {
            "client": self.name,
            "state": self.result.state,
            "receipt_verified": receipt is not None,
            "bytes_before": self.before,
            "bytes_left": sum(self.after.values()),
            "ndcg_at_10": self.ndcg,
            "strategy": None if receipt is None else receipt.strategy,
            "rounds_replayed": None if receipt is None else receipt.rounds_replayed,
            "coverage": None if receipt is None else receipt.coverage,
            "receipt": self.result.receipt,
            "federator_key": key_to_text(self.federator_key),
        }


def check_promise(forget: dict[str, Any]) -> None:
    """FoltrError, in one line, unless the client was forgotten, has a receipt, and nothing of it was found."""
    client, failures = forget["client"], []
    if forget["state"] != "forgotten":
        failures.append(f"after {_FORGET_S:g} s its request is only {forget['state']}")
    elif not forget["receipt_verified"]:
        failures.append("its receipt is not valid")
    if unseen := [place for place, found in forget["bytes_before"].items() if not found]:
        failures.append(f"nothing of it was found in {', '.join(unseen)} even before, so a search there shows nothing")
    if forget["bytes_left"]:
        failures.append(f"{forget['bytes_left']} bytes of it are left")
    if failures:
        raise FoltrError(f"{client} asked to be forgotten, but {'; '.join(failures)}")


class ForgetDemo(Demo):
    """As its base, with one device that harms the model and then leaves, and with proof that it is gone."""

    def __init__(self, settings: Settings, n_clients: int, n_rounds: int, broker_url: str | None) -> None:
        if n_clients < 2:
            raise SettingsError("clients: 1; whoever is left has to learn without the one that goes: at least 2")
        if settings.method not in _METHODS:
            raise SettingsError(f"method: --forget is shown with {' or '.join(_METHODS)}, not with {settings.method}")
        super().__init__(settings, n_clients, n_rounds, broker_url)
        self._leaving: _Leaving | None = None

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
        federator_key, enrolment_key, credentials = self._enrolled(names, address)
        plan = FederationPlan(
            self._settings.federation,
            data.train.n_features,
            # All of them in every round, as in the simulator: then their figures can be compared.
            RoundPolicy(self._n_clients, self._n_clients, 0.0, _ROUND_S),
            training,
            chosen_ranker=ranker,
            seed=self._settings.seed,
            enrolment_key=enrolment_key,
            unlearning=UnlearningPolicy(interval=2, delay_s=0.5, step_s=10.0, patience_s=_FORGET_S),
        )
        service = FederatorService(plan, database, address, key=federator_key, give_up_after_s=GIVE_UP_S)
        simulating = asyncio.to_thread(expected_ndcg, self._settings, training, data, self._n_clients, self._n_rounds)
        ndcg: dict[str, float | None] = {**await _shown(simulating, _saying("simulating what is to be expected"))}
        with tempfile.TemporaryDirectory(prefix="foltr-demo-") as folder:
            store = Path(folder, "leaver.sqlite")
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(service.run())
                async with AsyncExitStack() as stack:
                    leaver, users = await self._devices(stack, credentials, store, data)
                    _say(f"{self._n_rounds} rounds of {len(users)} devices; {name} sends -{Z:g} times its own model")
                    await _shown(self._train(users, database), lambda: self._round_so_far(data, ranker, database))
                    model = await latest_model(database, plan.federation)
                    if model is None:
                        raise RuntimeError("a federation without a model")
                    ndcg["poisoned"] = ndcg_of(model, ranker, data)
                    traces = await self._traces(leaver, credentials[name], database)
                    before = await _shown(self._found(database, address, store, traces), _saying("searching"))
                    _say(f"The model is poisoned: nDCG@10 {ndcg['poisoned']:.4f}. {name} asks to be forgotten by MQTT")
                    result = await _shown(leaver.forget_me(timeout_s=_FORGET_S), lambda: self._job_so_far(database))
                    await _shown(self._let_go(database), _saying("letting go of its name"))
                service.stop()
                await serving
            await _shown(_until(database.vacuum, _SETTLE_S), _saying("writing the database anew"))
            after = await _shown(self._found(database, address, store, traces), _saying("searching once more"))
        receipt = _verified(result, federator_key.public, plan.federation)
        version = None if receipt is None else receipt.model_after
        model = None if version is None else await get_model(database, plan.federation, version)
        ndcg["unlearned"] = None if model is None else ndcg_of(model, ranker, data)
        self._leaving = _Leaving(name, federator_key.public, result, receipt, before, after, ndcg)

    # --- parts of it ----------------------------------------------------------------------------------------

    async def _devices(
        self, stack: AsyncExitStack, credentials: Mapping[str, Credentials], store: Path, data: "LoadedData"
    ) -> tuple[LeavingDevice, list[SimulatedUser]]:
        """The leaver, which is the last one, and the users of all. What they draw is as the simulator's clients do."""
        leaver, users = None, []
        for i, own in enumerate(credentials.values(), start=1):
            streams = client_streams(self._settings.seed, client_name(i))
            device: EdgeClient
            if i < self._n_clients:
                device = EdgeClient(
                    credentials=own, store=":memory:", seed=streams.device_seed, give_up_after_s=GIVE_UP_S
                )
            else:
                device = leaver = LeavingDevice(own, store, streams.device_seed)
            await stack.enter_async_context(device)
            clicks = click_model(self._settings.clicks, data.n_grades)
            users.append(SimulatedUser(device, data.train, clicks, streams.user))
        if leaver is None:
            raise RuntimeError("no device leaves")
        return leaver, users

    async def _train(self, users: Sequence[SimulatedUser], database: Database) -> None:
        async with asyncio.TaskGroup() as group:
            for user in users:
                taking_part = user.take_part(
                    self._settings.interactions, n_rounds=self._n_rounds, round_timeout_s=2 * _ROUND_S
                )
                group.create_task(taking_part)

        async def is_over() -> bool:
            row = await find_round(database, self._settings.federation, self._n_rounds)
            return row is not None and row.closed_at is not None

        await _until(is_over, 2 * _ROUND_S)

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
        """What is to be looked for, gathered while it is there."""
        federation = self._settings.federation
        data_key = None if database.keys is None else database.keys.find(federation, own.name)
        stored = await stored_updates(database, federation, own.name)
        updates = [*leaver.sent[-_REMEMBERED:], *stored[-_REMEMBERED:]]
        return traces_of(own.name, own.key.public, () if data_key is None else (data_key,), updates)

    async def _let_go(self, database: Database) -> None:
        """Wait until the federator has told the leaver, and does without its name."""

        async def is_nameless() -> bool:
            rows = await list_erasures(database, self._settings.federation)
            return not any(row.client_id for row in rows)

        await _until(is_nameless, _SETTLE_S)

    async def _found(
        self, database: Database, address: BrokerAddress, store: Path, traces: tuple[bytes, ...]
    ) -> dict[str, int]:
        """Bytes of the leaver, by place."""
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
        ranker: "Ranker",  # noqa: ARG002 (as the base's)
        database: Database,
        seconds: float,
    ) -> dict[str, Any]:
        leaving = self._leaving
        if leaving is None:
            raise RuntimeError("nobody left")
        n_others = self._n_clients - 1
        told = {
            "honest": f"had it done no harm: the model of {self._n_clients} honest devices (simulated)",
            "poisoned": f"the harm: the model in service when {leaving.name} asked to be forgotten",
            "unlearned": f"the recovery: the model in service since, made anew by the {n_others} others",
            "retrained": f"the measure: the model of the {n_others} others, had it never been there (simulated)",
        }
        _say("How well the model ranks held-out queries (nDCG@10; 1 is perfect)")
        for which, words in told.items():
            _say(f"  {'-' if (ndcg := leaving.ndcg[which]) is None else f'{ndcg:.4f}'}  {words}")
        receipt = leaving.receipt
        if receipt is not None:
            coverage = "-" if receipt.coverage is None else f"{receipt.coverage:.2f}"
            _say(
                f"Receipt: verified with the federator's key {key_to_text(leaving.federator_key)}: {receipt.n_updates} "
                f"updates erased, {receipt.models_withdrawn} models withdrawn; {receipt.strategy}, "
                f"{receipt.rounds_replayed} steps, coverage {coverage}"
            )
        places = [_Place(place, leaving.before[place], found) for place, found in leaving.after.items()]
        print_rows(places, ("place", "before", "after"), title=f"Bytes of {leaving.name}", as_json=False)
        if database.dialect != "sqlite":
            _say("Of the database the rows were searched; the server's files hold what it deletes for some time more")
        self._look_further("audit verify", "models list", "rounds list")
        self._hand_over(leaving)
        return {"forget": leaving.plain(), **self._circumstances(data, seconds)}

    def _hand_over(self, leaving: _Leaving) -> None:
        """Write the receipt and the key to check it with, beside the database or, with a server, here."""
        if leaving.result.receipt is None:
            return
        url = self._settings.db_url
        beside = Path(url.removeprefix("sqlite:///") if url.startswith("sqlite:///") else "foltr-demo-forget")
        receipt, key = (beside.with_name(f"{beside.name}.{ending}") for ending in ("receipt.jws", "federator.pub"))
        for file, text in ((receipt, leaving.result.receipt), (key, key_to_text(leaving.federator_key))):
            try:
                file.write_text(f"{text}\n", encoding="ascii")
            except OSError as error:
                _say(f"The receipt is not beside the database: {file} cannot be written: {error.strerror or error}")
                return
        _say("Check the receipt yourself; it needs no database and no network:")
        _say(f"  {command_name()} receipt verify {shlex.quote(str(receipt))} --key {shlex.quote(str(key))}")


def _verified(result: ForgetResult, federator_key: bytes, federation: str) -> ErasureReceipt | None:
    """The receipt, if there is one, the federator has signed it, and it is of this federation."""
    try:
        receipt = None if result.receipt is None else verify_receipt(result.receipt, federator_key)
    except DataError as error:
        _say(str(error))
        return None
    return receipt if receipt is not None and receipt.federation == federation else None


async def _until(holds: Callable[[], Awaitable[bool]], timeout_s: float) -> None:
    """Wait until it holds, at most so long: what is not as it should be is found later."""
    for _ in range(math.ceil(timeout_s / _POLL_S)):
        if await holds():
            return
        await asyncio.sleep(_POLL_S)


async def _shown(work: Coroutine[Any, Any, T], words: Callable[[], Awaitable[str]]) -> T:
    """The result of ``work``; meanwhile it is shown how far it is."""
    task, text, said, said_at = asyncio.create_task(work), "", "", -math.inf
    try:
        with console.status("") as status:
            while not task.done():
                text = await words()
                status.update(text)
                if not console.is_terminal and time.monotonic() >= said_at + _LINE_S:
                    said, said_at = text, time.monotonic()
                    _say(text)
                await asyncio.wait({task}, timeout=_POLL_S)
        if not console.is_terminal and (text := await words()) != said:
            _say(text)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return task.result()


def _saying(words: str) -> Callable[[], Awaitable[str]]:
    async def say() -> str:
        return words

    return say


def _say(text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)
