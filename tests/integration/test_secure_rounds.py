"""A whole federation with secure sums: a real broker and database, helpers in processes of their own, and devices."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import numpy as np
import pytest
from cli.commands import environment, foltr
from integration.deployment import until
from links import Inbox, connected
from played import adding_learner
from prepared import PreparedProcess
from secure_cohorts import FEDERATION, HelperPair, SecureFederation

from broker.address import BrokerAddress
from edge_client.client import EdgeClient
from federator.plan import FederationPlan
from federator.round import RoundPolicy
from federator.secure_terms import SecureSettings
from federator.service import FederatorService
from foltr.failpoints import VARIABLE, Failpoint
from foltr.methods.initial_models import InitialModel
from foltr.operator.credentials import (
    BrokerAccess,
    Credentials,
    device_identity,
    read_credentials,
    write_credentials,
)
from foltr.operator.helper_keys import read_helper_keys
from foltr.protocol.fields import pack_vector, unpack_vector
from foltr.protocol.policies import GaussianNoise
from foltr.protocol.schemas import Feature, FeatureSchema
from foltr.protocol.signing import SigningKey
from foltr.protocol.states import RoundState
from foltr.protocol.trainings import PdgdTraining
from storage.database import Database
from storage.models import latest_model
from storage.queries import list_rounds
from storage.sums import load_answers, load_sums

DIM, N_DEVICES, TIMEOUT_S = 4, 5, 60.0
ONE_EACH = PdgdTraining(min_interactions=1, max_interactions=1)
# A device learns 1 in one coordinate; with next to no noise a model shows how many did.
QUIET = {"epsilon": 1e6, "noise": GaussianNoise(variance=1)}
# Twice as much as the application's numbers makes 1.
SCHEMA = FeatureSchema(
    name="shop",
    version=1,
    features=[Feature(name=f"f{i}", scaling="min_max", low=0, high=0.5) for i in range(DIM)],
)
FIRST = [3.0, 0.0, 0.0, -2.0]


class Whole:
    """The federation, with its helpers' processes."""

    def __init__(self, folder, url: str) -> None:
        self.folder = folder
        self.url = url
        self.federation = SecureFederation(2, dim=DIM)
        self.processes: dict[str, PreparedProcess] = {}
        keys = [self._keys_of(pair) for pair in self.federation.helpers]
        settings = {"helpers": keys, "n_min": 3, "n_max": 100, "n_interactions": 1, **QUIET}
        self.policy = self.federation.issue(**settings)

    def _keys_of(self, pair: HelperPair):
        path, out = self.folder / f"{pair.name}.json", self.folder / f"{pair.name}.keys"
        write_credentials(path, self.federation.credentials(pair, self.url))
        done = foltr("helper", "keys", "--credentials", path, "--out", out, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return read_helper_keys(out)

    def start_helper(self, name: str, failpoints: str = "") -> PreparedProcess:
        with (self.folder / f"{name}.out").open("ab") as output:
            words = ["helper", "run", "--credentials", f"{name}.json"]
            variables = environment(**{VARIABLE: failpoints})
            self.processes[name] = PreparedProcess(
                words, variables, self.folder, output=output.fileno(), errors=output.fileno()
            )
        return self.processes[name]

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def credentials(self, i: int) -> Credentials:
        access = BrokerAccess(broker_url=self.url)
        key = self.federation.operator
        made = device_identity(key, self.federation.federator.public, FEDERATION, f"device-{i}", i + 1, access)
        return made.model_copy(update={"policy": base64.b64encode(self.policy.signed).decode()})

    @asynccontextmanager
    async def federator(self, database: Database, n_rounds: int, **rounds) -> AsyncIterator[asyncio.Task[None]]:
        """A federator for the time of the block."""
        plan = FederationPlan(
            FEDERATION,
            DIM,
            RoundPolicy(**{"min_clients": N_DEVICES, "max_clients": N_DEVICES, "max_time_s": 60.0} | rounds),
            ONE_EACH,
            stop_after_round=n_rounds,
            enrolment_key=self.federation.operator.public,
            secure=SecureSettings(self.policy, clip_norm=2.56),
            schema=SCHEMA,
            first_weights=pack_vector(FIRST),
        )
        key = SigningKey.from_text(self.federation.federator.to_text())
        service = FederatorService(plan, database, BrokerAddress.parse(self.url), key=key, give_up_after_s=20)
        started = asyncio.Event()
        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
            running = group.create_task(service.run(started.set))
            await started.wait()
            yield running
            service.stop()

    def start_federator(self, database_url: str, failpoints: str = "", *options: str) -> PreparedProcess:
        """``foltr federator run`` for one round."""
        federator = self.federation.federator
        credentials = self.credentials(0).model_copy(
            update={"role": "federator", "name": "@federator", "signing_key": federator.to_text(), "enrolment": None}
        )
        write_credentials(self.folder / "federator.json", credentials)
        (self.folder / "shop.json").write_text(SCHEMA.to_json())
        (self.folder / "first.json").write_text(InitialModel.of(SCHEMA, np.array(FIRST)).to_json())
        quorum = str(N_DEVICES)
        command = [
            *("federator", "run", "--credentials", "federator.json", "--db", database_url, "--keys", "keys"),
            *("--privacy", "secure", "--clip-norm", "2.56", "--interactions", "1"),
            *("--schema", "shop.json", "--initial-model", "first.json"),
            *("--min-clients", quorum, "--max-clients", quorum, "--min-time", "0", "--rounds", "1", *options),
        ]
        with (self.folder / "federator.out").open("ab") as output:
            self.processes["federator"] = PreparedProcess(
                command,
                environment(**{VARIABLE: failpoints}),
                self.folder,
                output=output.fileno(),
                errors=output.fileno(),
            )
        return self.processes["federator"]

    async def publish_policy(self, link) -> None:
        await link.publish(f"foltr/v1/{FEDERATION}/policy", self.policy.signed, retain=True)


def click(client: EdgeClient, number: int) -> None:
    features = np.zeros((3, DIM), np.float32)
    features[:, number] = 0.5
    client.record_clicks(client.rank(features), [0])


async def closed(database: Database, number: int) -> RoundState:
    """Wait for the end of a round."""

    async def is_closed() -> bool:
        return any(row.round == number and row.closed_at is not None for row in await list_rounds(database, FEDERATION))

    await until(is_closed, TIMEOUT_S, f"round {number} has not ended")
    (row,) = [row for row in await list_rounds(database, FEDERATION) if row.round == number]
    return row.state


@pytest.fixture
async def whole(mosquitto_server, tmp_path):
    made = Whole(tmp_path, mosquitto_server.url)
    try:
        async with connected(mosquitto_server.url, "operator", Inbox(), []) as link:
            await made.publish_policy(link)
            yield made
    finally:
        made.close()


@pytest.fixture
async def devices(whole):
    async with AsyncExitStack() as stack:
        made = []
        for i in range(N_DEVICES):
            client = EdgeClient(
                credentials=whole.credentials(i), store=":memory:", learner=adding_learner, seed=i, schema=SCHEMA
            )
            made.append(await stack.enter_async_context(client))
        yield made


async def learned(database: Database) -> list[float]:
    """Return what was added to the model that the federation began with."""
    model = await latest_model(database, FEDERATION)
    assert model is not None
    return [float(value - first) for value, first in zip(unpack_vector(model.weights), FIRST, strict=True)]


@pytest.mark.slow
async def test_devices_learn_and_the_federator_has_sums_alone(whole, devices, database, migrated_url) -> None:
    """Two rounds of five devices; one helper dies in the second, wherever its answer was, and is started again.

    Features are scaled by the federation's schema, and what is learned is added to the model that it began with. A
    device with another schema is in no sum and keeps its clicks.
    """
    other = EdgeClient(credentials=whole.credentials(N_DEVICES), store=":memory:", learner=adding_learner, seed=9)
    whole.start_helper("north")
    whole.start_helper("south", f"{Failpoint.SUM_OPENED}=kill@2")
    async with whole.federator(database, 2), other:
        for i, client in enumerate((*devices, other)):
            click(client, i % 2)
        assert await closed(database, 1) is RoundState.COMPLETED
        assert await learned(database) == pytest.approx([0.6, 0.4, 0, 0], abs=0.05)
        assert (other.n_waiting, other.n_updates_counted, other.model_version) == (1, 0, None)
        for client in devices:
            click(client, 3)
        process = whole.processes["south"]
        await until(lambda: process.poll() is not None, TIMEOUT_S, "south lives on")
        whole.start_helper("south")
        assert await closed(database, 2) is RoundState.COMPLETED
    assert await learned(database) == pytest.approx([0.6, 0.4, 0, 1], abs=0.1)
    for number in (1, 2):
        (sums,) = await load_sums(database, FEDERATION, number)
        assert sums.n_clients == N_DEVICES
        assert {row.helper for row in await load_answers(database, FEDERATION, number)} == {"north", "south"}
    where = ("--db", migrated_url, "--federation", FEDERATION)
    shown = json.loads(foltr("rounds", "show", "2", *where, "--json").stdout)["sums"]
    assert [(each["n_clients"], each["n_out"], each["helpers"]) for each in shown] == [(N_DEVICES, 0, "north, south")]
    assert shown[0]["noise"] == "gaussian, variance 1"
    replayed = foltr("replay", "2", *where, cwd=whole.folder)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


@pytest.mark.slow
async def test_a_federator_that_is_stopped_while_helpers_are_away_goes_on(whole, devices, database) -> None:
    """It waits in ``checking``; the next federator asks anew, and the helpers are there by then."""
    async with whole.federator(database, 1):
        for client in devices:
            click(client, 2)

        async def is_checking() -> bool:
            return [row.state for row in await list_rounds(database, FEDERATION)] == [RoundState.CHECKING]

        await until(is_checking, TIMEOUT_S, "helpers were not asked")
    for name in ("north", "south"):
        whole.start_helper(name)
    began = time.monotonic()
    async with whole.federator(database, 1):
        assert await closed(database, 1) is RoundState.COMPLETED
    assert time.monotonic() - began < TIMEOUT_S
    assert await learned(database) == pytest.approx([0, 0, 1, 0], abs=0.05)


DIES_AT = (
    Failpoint.COLLECTING_STOPPED,
    Failpoint.SETS_DECIDED,
    Failpoint.IN_SETS_TRANSACTION,
    Failpoint.SETS_STORED,
    Failpoint.ANSWERS_STORED,
    Failpoint.IN_SUMS_TRANSACTION,
    Failpoint.SUMS_STORED,
    Failpoint.AGGREGATED,
    Failpoint.IN_ROUND_TRANSACTION,
)


@pytest.mark.slow
@pytest.mark.parametrize("point", DIES_AT)
async def test_kill_9_of_the_federator_costs_no_round(whole, devices, database, migrated_url, point) -> None:
    """Wherever it dies, the next one asks for the same set, and the helpers, who answer once, answer it."""
    for name in ("north", "south"):
        whole.start_helper(name)
    for client in devices:
        click(client, 1)
    first = whole.start_federator(migrated_url, f"{point}=kill")
    await until(lambda: first.poll() is not None, TIMEOUT_S, "the federator lives on")
    assert first.returncode == -9, (whole.folder / "federator.out").read_text()
    second = whole.start_federator(migrated_url)
    await until(lambda: second.poll() is not None, TIMEOUT_S, "the federator goes on")
    assert second.returncode == 0, (whole.folder / "federator.out").read_text()
    assert await closed(database, 1) is RoundState.COMPLETED
    assert await learned(database) == pytest.approx([0, 1, 0, 0], abs=0.05)


async def test_a_federator_is_refused_where_its_privacy_cannot_be(whole, database, migrated_url) -> None:
    """Without a policy, and where the federation is a secure one already; in words that name what to do."""
    async with whole.federator(database, 1):
        pass
    refused = whole.start_federator(migrated_url, "", "--privacy", "trusted")
    assert refused.wait(60) == 2
    said = (whole.folder / "federator.out").read_text()
    assert "is stored with method = 'fpdgd', privacy = 'secure'" in said
    assert "devices that know the policy send nothing to a trusted federation" in said
    path = whole.folder / "federator.json"
    bare = read_credentials(path, "federator").model_copy(update={"policy": None})
    write_credentials(path, bare)
    done = foltr("federator", "run", "--credentials", path, "--privacy", "secure", cwd=whole.folder)
    assert done.returncode != 0
    assert "`foltr policy new`" in done.stderr
