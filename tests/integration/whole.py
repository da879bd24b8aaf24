"""A whole federation with secure sums, for tests: its policy, the processes of its services, and its devices."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import numpy as np
from cli.commands import foltr
from integration.deployment import logged_process
from integration.peers import served
from support.broker_links import Inbox, connected
from support.federator_by_hand import adding_learner
from support.prepared_processes import PreparedProcess, with_defaults
from support.secure_cohorts import FEDERATION, HelperPair, SecureFederation
from support.waiting import until

from foltr.core.methods.initial_models import InitialModel
from foltr.core.operator.credentials import BrokerAccess, Credentials, device_identity, write_credentials
from foltr.core.operator.helper_keys import read_helper_keys
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.policies import GaussianNoise
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.signing import SigningKey, key_to_text
from foltr.core.protocol.states import RoundState
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.contribution import Alteration
from foltr.edge_client.options import Experiment, Privacy
from foltr.edge_client.sums.privacy_limits import PrivacyLimits
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.secure_terms import SecureSettings
from foltr.storage.database import Database
from foltr.storage.models import latest_model
from foltr.storage.queries import list_rounds

DIM, N_DEVICES = 4, 5
ONE_EACH = PdgdTraining(min_interactions=1, max_interactions=1)
# A device learns 1 in one coordinate; with next to no noise a model shows how many did.
QUIET = {"epsilon": 1e6, "noise": GaussianNoise(variance=1)}
ANY_POLICY = PrivacyLimits(max_epsilon=1e6, min_cohort=2)
# Twice as much as the application's numbers makes 1.
SCHEMA = FeatureSchema(
    name="shop", version=1, features=[Feature(name=f"f{i}", scaling="min_max", low=0, high=0.5) for i in range(DIM)]
)
FIRST = [3.0, 0.0, 0.0, -2.0]


def make_helper_keys(folder, federation: SecureFederation, pair: HelperPair, url: str):
    """Enrol a helper and have it make its keys; those that a policy names."""
    path, out = folder / f"{pair.name}.json", folder / f"{pair.name}.keys"
    write_credentials(path, federation.credentials(pair, url))
    done = foltr("helper", "keys", "--credentials", path, "--out", out, cwd=folder)
    assert done.returncode == 0, done.stderr
    return read_helper_keys(out)


def start_helper(folder, name: str, failpoints: str = "", **variables: str) -> PreparedProcess:
    words = ["helper", "run", "--credentials", f"{name}.json"]
    return logged_process(words, folder / f"{name}.out", folder, failpoints=failpoints, **variables)


class Whole:
    """The federation, with its helpers' processes; its policy asks for norm proofs if told so."""

    def __init__(self, folder, url: str, *, proofs: bool = False, **policy: Any) -> None:
        self.folder = folder
        self.url = url
        self.federation = SecureFederation(2, dim=DIM, proofs=proofs)
        self.processes: dict[str, PreparedProcess] = {}
        keys = [make_helper_keys(folder, self.federation, pair, url) for pair in self.federation.helpers]
        settings = {"helpers": keys, "n_min": 3, "n_max": 100, "n_interactions": 1, **QUIET}
        self.policy = self.federation.issue(**settings | policy)

    def start_helper(self, name: str, failpoints: str = "", **variables: str) -> PreparedProcess:
        self.processes[name] = start_helper(self.folder, name, failpoints, **variables)
        return self.processes[name]

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def credentials(self, i: int) -> Credentials:
        access = BrokerAccess(broker_url=self.url)
        key = self.federation.operator
        federator, name = self.federation.federator.public, f"device-{i}"
        made = device_identity(key, federator, FEDERATION, name, i + 1, access, secure=True)
        return made.model_copy(update={"policy": base64.b64encode(self.policy.signed).decode()})

    @asynccontextmanager
    async def federator(self, database: Database, n_rounds: int, **settings: Any) -> AsyncIterator[asyncio.Task[None]]:
        """A federator for the time of the block; ``settings`` are of its plan."""
        plan = FederationPlan(
            FEDERATION,
            DIM,
            RoundPolicy(min_clients=N_DEVICES, max_clients=N_DEVICES, max_time_s=3600.0),
            settings.pop("training", ONE_EACH),
            stop_after_round=n_rounds,
            enrolment_key=self.federation.operator.public,
            secure=SecureSettings(self.policy, clip_norm=2.56, sealing_keys=(self.federation.federator_sealing_key,)),
            schema=SCHEMA,
            first_weights=pack_vector(FIRST),
            **settings,
        )
        key = SigningKey.from_text(self.federation.federator.to_text())
        async with served(self.url, database, plan, key) as running:
            yield running

    def start_federator(
        self,
        database_url: str,
        failpoints: str = "",
        *options: str,
        defaults: Mapping[str, Mapping[str, float]] | None = None,
        **variables: str,
    ) -> PreparedProcess:
        """``foltr federator run`` for one round; ``defaults`` as for `with_defaults`."""
        federator = self.federation.federator
        credentials = self.credentials(0).model_copy(
            update={
                "role": "federator",
                "name": "@federator",
                "signing_key": federator.to_text(),
                "enrolment": None,
                "sealing_keys": (key_to_text(self.federation.federator_sealing_key.private),),
            }
        )
        write_credentials(self.folder / "federator.json", credentials)
        (self.folder / "shop.json").write_text(SCHEMA.to_json())
        (self.folder / "first.json").write_text(InitialModel.of(SCHEMA, np.array(FIRST)).to_json())
        quorum = str(N_DEVICES)
        command = [
            *("federator", "run", "--credentials", "federator.json", "--db", database_url, "--keys", "keys"),
            *("--privacy", "secure", "--interactions", "1", "--schema", "shop.json"),
            *("--min-clients", quorum, "--max-clients", quorum, "--min-time", "0", "--rounds", "1", *options),
        ]
        changed = {"foltr.federator.secure_terms.SecureSettings": {"clip_norm": 2.56}, **(defaults or {})}
        variables |= {"FOLTR_INITIAL_MODEL": "first.json", **with_defaults(changed)}
        log = self.folder / "federator.out"
        self.processes["federator"] = logged_process(command, log, self.folder, failpoints=failpoints, **variables)
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

    await until(is_closed, f"round {number} has not ended")
    (row,) = [row for row in await list_rounds(database, FEDERATION) if row.round == number]
    return row.state


async def learned(database: Database) -> list[float]:
    """Return what was added to the model that the federation began with."""
    model = await latest_model(database, FEDERATION)
    assert model is not None
    return [float(value - first) for value, first in zip(unpack_vector(model.weights), FIRST, strict=True)]


@asynccontextmanager
async def running(folder, url: str, *, proofs: bool = False, **policy: Any) -> AsyncIterator[Whole]:
    """A federation whose policy is at the broker; its processes end with the block."""
    made = Whole(folder, url, proofs=proofs, **policy)
    try:
        async with connected(url, "operator", Inbox(), []) as link:
            await made.publish_policy(link)
            yield made
    finally:
        made.close()


@asynccontextmanager
async def joined(
    whole: Whole, lying: Callable[[SignedPolicy, SigningKey], Alteration] | None = None
) -> AsyncIterator[list[EdgeClient]]:
    """Its devices, in this process; the first so many send what is far too long, with forged norm proofs."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(_device(whole, i, None if i else lying)) for i in range(N_DEVICES)]


def _device(whole: Whole, i: int, lying: Callable[[SignedPolicy, SigningKey], Alteration] | None) -> EdgeClient:
    credentials = whole.credentials(i)
    return EdgeClient(
        credentials,
        store=":memory:",
        schema=SCHEMA,
        experiment=Experiment(
            learner=adding_learner, seed=i, alter_update=lying(whole.policy, credentials.key) if lying else None
        ),
        privacy=Privacy(privacy_limits=ANY_POLICY),
    )
