"""A signed federation as an operator sets one up, for tests: its keys, its database, its federator's process."""

import asyncio
import signal
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from _pytest.mark import ParameterSet
from cli.commands import environment
from integration.oracle import check_history
from support import waiting
from support.databases import open_migrated
from support.prepared_processes import PreparedProcess
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.core.failpoints import VARIABLE
from foltr.core.operator.credentials import BrokerAccess, Credentials, read_credentials
from foltr.core.operator.folder import create_authority
from foltr.core.protocol.trainings import PdgdTraining
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.service import FederatorService
from foltr.storage.database import Database
from foltr.storage.keys import KeyStore
from foltr.storage.queries import list_rounds

FEDERATION = "oracle"
DIM = 4
ONE_EACH = PdgdTraining(min_interactions=1, max_interactions=1)


def client_name(i: int) -> str:
    """The client whose every update adds 2^i."""
    return f"oracle-{i:02d}"


def enrol(folder: Path, broker_url: str, n_clients: int) -> list[Credentials]:
    """Make an operator's folder, with ``federator.json``, and enrol the oracle's clients in it."""
    access = BrokerAccess(broker_url=broker_url)
    with create_authority(folder, FEDERATION, federator=access, operator=access) as authority:
        return authority.enrol_all({client_name(i): access for i in range(n_clients)})


def logged_process(
    words: Sequence[str],
    log: Path,
    cwd: Path | None = None,
    *,
    failpoints: str = "",
    program: Path | None = None,
    **variables: str,
) -> PreparedProcess:
    """Start ``foltr``, or another program, which adds all that it says to a file."""
    variables = {VARIABLE: failpoints, **variables}
    with log.open("ab") as output:
        return PreparedProcess(words, environment(**variables), cwd, output=output.fileno(), program=program)


class Deployment:
    """One federation, with the credentials of device i, which adds 2^i; the block's end kills its processes."""

    def __init__(self, folder: Path, broker_url: str, database_url: str, n_clients: int) -> None:
        self.broker_url = broker_url
        self.database_url = database_url
        self.n_clients = n_clients
        self.devices = enrol(folder / "operator", broker_url, n_clients)
        self._key_store = KeyStore(folder / "keys")
        self.federator: PreparedProcess | None = None
        self.workers: list[PreparedProcess] = []
        self._processes: list[PreparedProcess] = []
        self._credentials = folder / "operator" / "federator.json"
        self._log = folder / "federator.log"
        self._keys = str(folder / "keys")

    async def __aenter__(self) -> Self:
        self.database = await open_migrated(self.database_url, self._key_store)
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        await self.database.close()

    async def reopen_database(self) -> None:
        """Connect anew: the server that the old connections were to is gone."""
        await self.database.close()
        self.database = await Database.connect(self.database_url, retry_for_s=PATIENCE_S, keys=self._key_store)

    def start_federator(
        self,
        n_rounds: int,
        *options: str,
        failpoints: str = "",
        max_time_s: float = 3600.0,
        broker_url: str = "",
        program: Path | None = None,
        **variables: str,
    ) -> PreparedProcess:
        """``foltr federator run`` with a quorum of every client, so that a round is over when all are in it."""
        quorum = str(self.n_clients)
        command = [
            *("federator", "run", "--credentials", str(self._credentials), "--db", self.database_url),
            *("--keys", self._keys),
            *("--features", str(DIM), "--interactions", "1", "--min-clients", quorum, "--max-clients", quorum),
            *("--min-time", "0", "--max-time", f"{max_time_s:g}", "--rounds", str(n_rounds)),
            *("--broker", broker_url or self.broker_url),
            *options,
        ]
        self.federator = self._start(command, failpoints=failpoints, program=program, **variables)
        return self.federator

    def start_worker(self, *, failpoints: str = "", **variables: str) -> PreparedProcess:
        """``foltr federator run --role ingest``, beside a federator that was started with ``--role leader``."""
        command = [
            *("federator", "run", "--role", "ingest", "--credentials", str(self._credentials)),
            *("--db", self.database_url, "--keys", self._keys, "--broker", self.broker_url),
        ]
        self.workers.append(self._start(command, failpoints=failpoints, **variables))
        return self.workers[-1]

    def _start(self, command: Sequence[str], **options: Any) -> PreparedProcess:
        self._processes.append(logged_process(command, self._log, **{"FOLTR_LOG_LEVEL": "warning", **options}))
        return self._processes[-1]

    def service(self, n_rounds: int, database: Database, *, standby: bool = False) -> FederatorService:
        """The same federator inside this process."""
        credentials = read_credentials(self._credentials, "federator")
        plan = FederationPlan(
            FEDERATION,
            DIM,
            RoundPolicy(self.n_clients, self.n_clients, 0, 3600),
            ONE_EACH,
            stop_after_round=n_rounds,
            database_patience_s=PATIENCE_S,
            enrolment_key=credentials.enrolment_public_key,
        )
        address = BrokerAddress.parse(self.broker_url)
        return FederatorService(plan, database, address, key=credentials.key, standby=standby)

    @property
    def operator_file(self) -> Path:
        """The credentials of the operator's commands."""
        return self._credentials.with_name("operator.json")

    @property
    def is_alive(self) -> bool:
        """Whether the newest federator process has not ended."""
        return self.federator is not None and self.federator.poll() is None

    async def kill_federator(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self.federator is not None
        self.federator.kill()
        await self.exit_code()

    async def exit_code(self, process: PreparedProcess | None = None) -> int:
        """How a federator process ends, the newest unless another is named."""
        process = process or self.federator
        assert process is not None
        await waiting.until(lambda: process.poll() is not None, "the federator goes on")
        return process.returncode

    async def serves(self) -> None:
        """Wait until the newest federator process hears the devices (or died): what is said before is said again."""

        async def open_or_dead() -> bool:
            return not self.is_alive or bool(await list_rounds(self.database, FEDERATION))

        await waiting.until(open_or_dead, "the first round was not opened")

    async def check_told(self, told: Sequence[asyncio.Task[int]]) -> None:
        """Check that receipts, stored updates and the models' contents agree."""
        counted = await check_history(self.database_url, FEDERATION)
        assert counted == {client_name(i): task.result() for i, task in enumerate(told)}

    async def n_completed(self) -> int:
        """How many rounds have made a model."""
        return sum(row.state == "completed" for row in await list_rounds(self.database, FEDERATION, limit=10_000))

    async def rounds_reach(self, n: int) -> None:
        """Wait until ``n`` rounds have made a model."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                # What happens next is to happen between this round and the end of the run.
                while await self.n_completed() < n:  # noqa: ASYNC110 (the database tells nobody)
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pytest.fail(f"{n} completed rounds were not reached; the federator said:\n{self.said()}")

    def said(self) -> str:
        """What the federator processes wrote."""
        return self._log.read_text() if self._log.exists() else ""


SQLITE = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
POSTGRESQL = pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)


def died_by_sigkill(exit_code: int) -> bool:
    return exit_code == -signal.SIGKILL


def swept(cases: Iterable[tuple[object, ...]], usual: Collection[tuple[object, ...]]) -> list[ParameterSet]:
    """All of these cases for the night, of which every run tries the usual ones."""
    marks = {True: (), False: (pytest.mark.nightly,)}
    return [pytest.param(*case, marks=marks[case in usual], id="-".join(map(str, case))) for case in cases]


def on(usual: str) -> pytest.MarkDecorator:
    """The test runs on this database, and on the other one in the night."""
    cases = swept([("sqlite",), ("postgresql",)], [(usual,)])
    return pytest.mark.parametrize("migrated_url", cases, indirect=True)
