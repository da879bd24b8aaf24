"""``foltr demo``: a local federation that learns on real data. Other demonstrations build on it."""

import asyncio
import contextlib
import json as json_text
import math
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import typer

from foltr.broker.address import BrokerAddress
from foltr.cli import options
from foltr.cli.data import find_data
from foltr.cli.fields import option
from foltr.cli.fleet.fleet import Fleet
from foltr.cli.method import choose_method
from foltr.cli.output import check_writable, configure_logging, console, print_rows, to_plain
from foltr.cli.settings import Settings, load_settings, takes_settings
from foltr.core.data.sources import LoadedData
from foltr.core.errors import SettingsError, first_cause
from foltr.core.evaluation.metrics import mean_ndcg_of_scores
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.lambdarank import logging_policy
from foltr.core.methods.base import DeviceContext, scores_of
from foltr.core.methods.lists import make_list
from foltr.core.methods.registry import Ranker, draws_lists, initial_weights, make_device, method_spec
from foltr.core.methods.spec import Lists
from foltr.core.operator.credentials import BrokerAccess, Credentials, device_identity
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.trainings import Training

if TYPE_CHECKING:
    from foltr.storage.database import Database
    from foltr.storage.records import ModelRow

KEYS: Final = (
    *("interactions", "method", "method_parameters", "exploration", "ranker", "hidden"),
    *("clicks", "dataset", "seed"),
)
Clients = Annotated[int, option("Simulated devices", min=1, max=2000)]
Rounds = Annotated[int, option("Rounds", min=1, max=100_000)]
Broker = Annotated[str | None, option("Use this broker instead of starting the embedded one", "--broker")]


_POLL_S = 0.2
# Without a terminal, progress lines are at least this far apart.
_LINE_S = 1.5
# A round waits this long for stragglers once four of five clients have sent, and at most that long in all.
_MIN_TIME_S, _MAX_TIME_S = 1.0, 20.0


@takes_settings(KEYS)
def demo(
    clients: Clients = 20,
    rounds: Rounds = 50,
    db: options.Db = None,
    broker: Broker = None,
    json: options.JsonFile = None,
    **flags: Any,
) -> None:
    """Run a federation on this machine: broker, federator and devices as real MQTT peers, on real data."""
    settings = demo_settings(db or "sqlite:///foltr-demo.sqlite", flags)
    show(Demo(settings, clients, rounds, broker), json)


def demo_settings(db_url: str, flags: dict[str, Any]) -> Settings:
    """Return settings for a new federation, so that its first model is the untrained one."""
    settings = load_settings(
        db_url=db_url, **flags, federation=f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}", log_level="error"
    )
    configure_logging(settings.log_level, settings.log_format)
    return settings


def show(demonstration: "Demo", json: Path | None) -> dict[str, Any]:
    """Run a demonstration and return its results. Write them to a file, too, if one is named."""
    check_writable(json, "--json", replaced=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = asyncio.run(demonstration.run())
    if json is not None:
        text = json_text.dumps(to_plain(results), indent=2)
        try:
            json.write_text(f"{text}\n")
        except OSError as error:
            typer.echo(text)
            raise SettingsError(f"--json: {json} cannot be written: {error.strerror or error}") from error
        console.print(f"Results: {json}", soft_wrap=True, highlight=False)
    return results


class Demo:
    """A local federation and its results."""

    def __init__(self, settings: Settings, n_clients: int, n_rounds: int, broker_url: str | None) -> None:
        self._settings = settings
        self._n_clients = n_clients
        self._n_rounds = n_rounds
        self._broker_url = broker_url

    async def run(self) -> dict[str, Any]:
        from foltr.storage.database import Database
        from foltr.storage.keys import KeyStore, keys_folder
        from foltr.storage.migrate import upgrade

        settings = self._settings
        data = find_data(settings.devices.dataset, settings.devices.seed)
        console.print(
            f"Data: {data.description}: {data.train.n_queries} training queries, {data.test.n_queries} held out, "
            f"{data.train.n_features} features",
            soft_wrap=True,
            highlight=False,
        )
        training, ranker = self._method(data)
        console.print(f"Method: {settings.learning.method}, {ranker.kind} ranker", highlight=False)
        console.print("Preparing the learner (compiled once, then cached)", highlight=False)
        await asyncio.to_thread(_warm_up, data, training, ranker)
        keys = KeyStore(keys_folder(settings.db_url, settings.keys))
        async with await Database.connect(settings.db_url, keys=keys) as database:
            await upgrade(database)
            started = time.perf_counter()
            with self._broker() as address:
                try:
                    await self._federate(data, training, ranker, database, address)
                except BaseExceptionGroup as failures:
                    raise first_cause(failures) from failures
            results = await self._report(data, ranker, database, time.perf_counter() - started)
        results["config"] |= {
            "ranker": ranker.model_dump(),
            "training": training.model_dump(exclude={"logging_policy"}),
        }
        return results

    @contextlib.contextmanager
    def _broker(self) -> Any:
        from foltr.broker.embedded import embedded_broker

        if self._broker_url is not None:
            yield BrokerAddress.parse(self._broker_url)
            return
        with embedded_broker() as address:
            yield address

    def _method(self, data: "LoadedData") -> "tuple[Training, Ranker]":
        extra = {}
        if method_spec(self._settings.learning.method).lists is Lists.LOGGED:
            # The ranker in production: trained on a hundredth of the queries with full information (fedips-2021).
            # The seed is named, so that the stream differs from that of synthetic data.
            rng = np.random.default_rng(np.random.SeedSequence([self._settings.devices.seed, *b"logging policy"]))
            extra["logging_policy"] = pack_vector(logging_policy(data.train, rng))
        learning = self._settings.learning
        if learning.exploration is None and draws_lists(learning.method):
            # Sampling, as in the papers: the demo has to learn in a minute and has no users who need better lists.
            learning = learning.model_copy(update={"exploration": "sampling"})
        return choose_method(learning, data.train.n_features, self._n_clients, **extra)

    async def _federate(
        self,
        data: "LoadedData",
        training: "Training",
        ranker: "Ranker",
        database: "Database",
        address: "BrokerAddress",
    ) -> None:
        from foltr.federator.plan import FederationPlan
        from foltr.federator.round import RoundPolicy
        from foltr.federator.service import FederatorService

        settings = self._settings
        names = [f"device-{i:03d}" for i in range(1, self._n_clients + 1)]
        federator_key, enrolment_key, credentials = self._enrol(names, address)
        plan = FederationPlan(
            settings.federation,
            data.train.n_features,
            RoundPolicy(math.ceil(0.8 * self._n_clients), self._n_clients, _MIN_TIME_S, _MAX_TIME_S),
            training,
            chosen_ranker=ranker,
            seed=settings.devices.seed,
            stop_after_round=self._n_rounds,
            enrolment_key=enrolment_key,
        )
        service = FederatorService(plan, database, address, key=federator_key, give_up_after_s=30.0)
        fleet = Fleet(
            broker_url=None,
            credentials=credentials,
            federation=settings.federation,
            data=data,
            clicks=settings.devices.clicks,
            interactions=settings.learning.interactions,
            seed=settings.devices.seed,
            stores=dict.fromkeys(names, ":memory:"),
            give_up_after_s=30.0,
        )
        async with asyncio.TaskGroup() as group:
            federating = group.create_task(service.run())
            group.create_task(fleet.run())
            await self._show_progress(federating, data, ranker, database)

    def _enrol(
        self, names: Sequence[str], address: "BrokerAddress"
    ) -> tuple[SigningKey, bytes, dict[str, Credentials]]:
        """Return the federator's key, the operator's public key, and the devices' credentials."""
        access = BrokerAccess(broker_url=str(address), username=address.username, password=address.password)
        operator, federator = SigningKey.generate(), SigningKey.generate()
        credentials = {
            name: device_identity(operator, federator.public, self._settings.federation, name, serial, access)
            for serial, name in enumerate(names, start=1)
        }
        return federator, operator.public, credentials

    async def _show_progress(
        self, federating: "asyncio.Task[None]", data: "LoadedData", ranker: "Ranker", database: "Database"
    ) -> None:
        from foltr.storage.models import latest_model
        from foltr.storage.rounds import latest_round

        printed, printed_at = -1, -math.inf
        with console.status("waiting for the first round") as status:
            while not federating.done():
                await asyncio.wait({federating}, timeout=_POLL_S)
                newest = await latest_round(database, self._settings.federation)
                model = await latest_model(database, self._settings.federation)
                if newest is None or model is None:
                    continue
                ndcg = await asyncio.to_thread(ndcg_of, model, ranker, data)
                done = newest.number if newest.closed_at is not None else newest.number - 1
                shown = f"round {done}/{self._n_rounds}  nDCG@10 {ndcg:.4f}"
                status.update(shown)
                is_due = (done % 10 == 0 or done < 4) and done != printed
                if not console.is_terminal and (is_due or time.monotonic() >= printed_at + _LINE_S):
                    printed, printed_at = done, time.monotonic()
                    console.print(shown, highlight=False)

    async def _report(
        self, data: "LoadedData", ranker: "Ranker", database: "Database", seconds: float
    ) -> dict[str, Any]:
        from foltr.storage.models import list_models
        from foltr.storage.queries import count_rejections, list_rounds

        name = self._settings.federation
        rounds = await list_rounds(database, name, limit=self._n_rounds)
        models = await list_models(database, name, limit=self._n_rounds + 1)
        by_version = {model.version: ndcg_of(model, ranker, data) for model in models}
        # A round without a model leaves the ranker unchanged.
        per_round = [by_version[row.base_version if row.model_version is None else row.model_version] for row in rounds]
        results = {
            "ndcg_at_10": {"first": by_version[0], "last": per_round[-1], "per_round": per_round},
            "updates": {
                "accepted": sum(row.n_updates for row in rounds),
                "rejected": await count_rejections(database, name),
            },
            "rounds": dict(Counter(row.state for row in rounds)),
            **self._circumstances(data, seconds),
        }
        columns = ("round", "state", "n_updates", "n_rejected", "duration_s", "model_version")
        print_rows(rounds[-10:], columns, title="The last rounds, from the database")
        first, last = by_version[0], per_round[-1]
        console.print(
            f"nDCG@10 on held-out queries: {first:.4f} before, {last:.4f} after {len(rounds)} rounds ({seconds:.1f} s)",
            soft_wrap=True,
            highlight=False,
        )
        self._look_further("rounds list", f"rounds show {rounds[-1].round}", "device show device-001", "models list")
        if self._settings.db_url.startswith("sqlite:///"):
            path = Path(self._settings.db_url.removeprefix("sqlite:///"))
            console.print(
                f"  sqlite3 {path} \"SELECT round, state, n_updates FROM round_history WHERE federation = '{name}'\"",  # noqa: S608 (printed)
                soft_wrap=True,
                highlight=False,
            )
        return results

    def _circumstances(self, data: "LoadedData", seconds: float) -> dict[str, Any]:
        """Return the circumstances to record with the results."""
        return {
            "db": self._settings.db_url,
            "federation": self._settings.federation,
            "data": data.description,
            "seconds": round(seconds, 3),
            "config": {
                "clients": self._n_clients,
                "rounds": self._n_rounds,
                "interactions": self._settings.learning.interactions,
                "clicks": self._settings.devices.clicks,
                "method": self._settings.learning.method,
                "seed": self._settings.devices.seed,
            },
        }

    def _look_further(self, *commands: str) -> None:
        console.print("Look further:", highlight=False)
        where = f"--db {self._settings.db_url} --federation {self._settings.federation}"
        for command in commands:
            console.print(f"  {command_name()} {command} {where}", soft_wrap=True, highlight=False)


def command_name() -> str:
    """Return how to call this program. `make demo` runs it from its environment, which need not be on the PATH."""
    return "foltr" if shutil.which("foltr") else sys.argv[0]


def ndcg_of(model: "ModelRow", ranker: "Ranker", data: "LoadedData") -> float:
    """Return nDCG@10 of the shared model. Parts that devices keep to themselves are not included."""
    weights = unpack_vector(model.weights)[: ranker.n_weights]
    return mean_ndcg_of_scores(scores_of(ranker, weights, data.test.features), data.test).mean


def _warm_up(data: "LoadedData", training: "Training", ranker: "Ranker") -> None:
    """Compile the numeric kernels beforehand, with a message on the screen."""
    rng = np.random.default_rng(0)
    model = initial_weights(training, ranker, rng)
    device = make_device(training, ranker, model, 0, DeviceContext(0))
    query = data.train.query(0)
    scores, variant = device.scores(query.features, exploring=True)
    shown = make_list(training, scores, training.serp_length, rng)
    clicks = shown.ranking == shown.ranking[0]
    device.learn(Interaction(0, query.features, shown.ranking, clicks, variant, 0, shown.reversals), rng)
    mean_ndcg_of_scores(scores_of(ranker, model[: ranker.n_weights], data.test.features), data.test)
