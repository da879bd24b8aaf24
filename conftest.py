"""Fixtures of every test: databases, brokers, and a random generator whose seed a failing test tells."""

import gc
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import numpy as np
import pytest
import structlog
from support import worker_shared
from support.compiled_statements import share_compiled_statements
from support.databases import PostgresDatabases, migrated_sqlite, open_migrated
from support.postgres_server import PostgresServer
from support.servers import IotcoreServer, MissingError, MosquittoServer
from support.slow_tests import slow_tests, without_case

from foltr.edge_client.options import CLICK_WINDOW_S
from foltr.edge_client.store.click_window import ClickWindow
from foltr.storage.database import Database

PROJECT = Path(__file__).parent
SEED_VARIABLE = "FOLTR_TEST_SEED"
# `make test-all` sets it: properties are tried on many more examples.
NIGHTLY_VARIABLE = "FOLTR_TEST_NIGHTLY"

Server = TypeVar("Server", PostgresServer, MosquittoServer, IotcoreServer)

_USED: pytest.StashKey[dict[str, str]] = pytest.StashKey()
_SKIPPED: pytest.StashKey[dict[str, str]] = pytest.StashKey()
_NAMES = {_USED: "servers_used", _SKIPPED: "servers_skipped"}
_SEED: pytest.StashKey[int] = pytest.StashKey()

gc.disable()  # until all is collected: `pytest_collection_finish`
share_compiled_statements()

# No property is judged by a clock: how long an example takes is its machine's business.
hypothesis.settings.register_profile("foltr", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("nightly", hypothesis.settings.get_profile("foltr"), max_examples=2_000)
hypothesis.settings.load_profile("nightly" if NIGHTLY_VARIABLE in os.environ else "foltr")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_USED] = {}
    config.stash[_SKIPPED] = {}
    if not hasattr(config, "workerinput"):
        # Workers inherit the variable. A server's user is to enter the folder, too.
        folder = tempfile.mkdtemp(prefix="foltr-tests-")
        Path(folder).chmod(0o755)
        os.environ[worker_shared.VARIABLE] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = slow_tests()
    for item in items:
        if without_case(item.nodeid) in slow:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """What was imported and collected stays as long as the process: no collection of garbage goes through it.

    That is half a million objects, which cost 0.2 to 0.4 s each time: three of the eight seconds of importing and
    collecting, and a twentieth of all processor time later.
    """
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker used and skipped is said by who started it. A worker that died says nothing."""
    for key in (_USED, _SKIPPED):
        node.config.stash[key].update(getattr(node, "workeroutput", {}).get(_NAMES[key], {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output.update({name: session.config.stash[key] for key, name in _NAMES.items()})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which real servers the run used and which it could not, and why."""
    used, skipped = config.stash[_USED], config.stash[_SKIPPED]
    if used:
        terminalreporter.write_line(f"real servers used: {', '.join(sorted(used.values()))}")
    for name, reason in sorted(skipped.items()):
        terminalreporter.write_line(f"real server skipped: {name}: {reason}")


@pytest.fixture(autouse=True)
def unconfigured_logging() -> Iterator[None]:
    """A command that ran in this process wrote its log to a standard error that is closed by now."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def kernels_at_their_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device in the tests' process has them loaded where it calls them: no test waits for an unseen compiler."""
    monkeypatch.setattr("foltr.edge_client.components.are_loaded", lambda _model, *, gated: True)  # noqa: ARG005


@pytest.fixture(autouse=True)
def no_usual_click_window() -> Iterator[None]:
    """An update takes a list at once, unless the test chooses how long it waits for more clicks."""
    lengths = weakref.WeakKeyDictionary[ClickWindow, float]()

    def choose(window: ClickWindow, length_s: float) -> None:
        lengths[window] = 0.0 if length_s == CLICK_WINDOW_S else length_s

    # Not the test's own, which it may undo.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClickWindow, "length_s", property(lengths.__getitem__, choose), raising=False)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed and (seed := item.stash.get(_SEED, None)) is not None:
        report.sections.append(("seed", f"repeat with {SEED_VARIABLE}={seed}"))
    return report


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test: from FOLTR_TEST_SEED, else a new one. A failing test prints it."""
    chosen = int(os.environ.get(SEED_VARIABLE) or secrets.randbits(32))
    request.node.stash[_SEED] = chosen
    return chosen


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A random generator made from ``seed``."""
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A real PostgreSQL for the whole run."""
    server = _started(request, "PostgreSQL", PostgresServer)
    yield server
    server.remove()


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: PostgresServer) -> PostgresDatabases:
    """Makes databases on that server, empty or migrated."""
    return PostgresDatabases(postgres_server)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables, of this test's own, on SQLite and then on PostgreSQL."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'foltr.sqlite'}"
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
    url = databases.empty()
    yield url
    databases.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def migrated_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """As `database_url`, with tables and without rows."""
    if request.param == "sqlite":
        yield migrated_sqlite(tmp_path / "foltr.sqlite")
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
    url = databases.migrated()
    yield url
    databases.release(url)


@pytest.fixture
def mosquitto_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MosquittoServer]:
    """A real Mosquitto of this test's own, which the test may stop, kill and start again."""
    folder = tmp_path_factory.mktemp("mosquitto")
    server = _started(request, "Mosquitto", lambda: MosquittoServer(folder))
    yield server
    server.stop()


@pytest.fixture
def iotcore_broker(request: pytest.FixtureRequest) -> Iterator[IotcoreServer]:
    """A real iotcore broker of this test's own."""
    server = _started(request, "iotcore", IotcoreServer)
    yield server
    server.stop()


@pytest.fixture
def mqtt_broker(request: pytest.FixtureRequest) -> str:
    """The address, ``mqtt://127.0.0.1:port``, of a real broker: Mosquitto, or what a test or folder names instead."""
    broker: MosquittoServer | IotcoreServer = request.getfixturevalue(getattr(request, "param", "mosquitto_server"))
    return broker.url


@pytest.fixture
async def database(migrated_url: str) -> AsyncIterator[Database]:
    """A migrated database, on SQLite and then on PostgreSQL."""
    async with await open_migrated(migrated_url) as opened:
        yield opened


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Return a folder of the research data, or skip the test if it is not on this machine."""
    root = Path(os.environ.get("FOLTR_DATA", PROJECT.parent / "shared" / "data"))

    def find(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"no {name} in {root}; set FOLTR_DATA to the folder with the research data")
        return root / name

    return find


@pytest.fixture(scope="session")
def parsed_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the whole run, never the user's own."""
    return tmp_path_factory.mktemp("parsed")


def _started(request: pytest.FixtureRequest, name: str, make: Callable[[], Server]) -> Server:
    try:
        server = make()
    except MissingError as error:
        request.config.stash[_SKIPPED][name] = str(error)
        pytest.skip(f"{name}: {error}")
    server.start()
    request.config.stash[_USED][name] = server.description
    return server
