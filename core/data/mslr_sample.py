"""Real data by package name: MSLR-WEB10K rows that the source package of `rankeval` carries for its own
tests.

The rows belong to a research-only collection, so this project ships none of them: a user's own machine
fetches the package from the index that its pip is configured for, and keeps two text files of it in the cache
directory.
"""

import contextlib
import hashlib
import io
import os
import shlex
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from foltr.core.data.dataset import cache_directory
from foltr.core.errors import UnavailableError
from foltr.core.extras import install_command

_PACKAGE = "rankeval"
_VERSION = "0.8.2"
_ARCHIVE_SHA256 = "c7d71602ab7fe0a0281976c1f0e883cb16431f72e4e946e5fd83790449bb21a9"
_MEMBERS = {
    "train.txt": f"{_PACKAGE}-{_VERSION}/rankeval/test/data/msn1.fold1.train.5k.txt",
    "test.txt": f"{_PACKAGE}-{_VERSION}/rankeval/test/data/msn1.fold1.test.5k.txt",
}
# The archive has 2.3 MB; a server that sends much more sends something else.
_LARGEST_ARCHIVE = 16 * 2**20
_TIME_LIMIT_S = 60.0


def fetch_mslr_sample(cache_dir: Path | None = None) -> Path:
    """Return a folder with `train.txt` and `test.txt` of MSLR-WEB10K Fold1, fetching it the first time.

    Each file has 42 queries with raw features; the last query of the published 5,000 lines is cut off in the
    middle and dropped. Read the folder with `foltr.core.data.letor.load_split`.

    Args:
        cache_dir: where to keep it; by default `foltr.core.data.dataset.cache_directory()`.

    Raises:
        UnavailableError: no index could be reached in time, it has no such package, what it sent is not the
            expected archive, or the extra `simulation` is not installed.
    """
    root = cache_directory() if cache_dir is None else Path(cache_dir)
    folder = root / "mslr-sample"
    if all((folder / name).is_file() for name in _MEMBERS):
        return folder
    archive = _download(time.monotonic() + _TIME_LIMIT_S)
    digest = hashlib.sha256(archive).hexdigest()
    if digest != _ARCHIVE_SHA256:
        problem = f"the package index sent another {_PACKAGE} {_VERSION} than expected"
        raise UnavailableError(f"{problem} (SHA-256 {digest}); check pip's index")
    root.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".mslr-sample-", dir=root))
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for name, member in _MEMBERS.items():
                source = tar.extractfile(member)
                if source is None:
                    raise UnavailableError(f"{_PACKAGE} {_VERSION} has no {member}")
                (scratch / name).write_bytes(without_last_query(source.read()))
        # Fails if another process was faster; its folder is as good, and anything else shows below.
        with contextlib.suppress(OSError):
            scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if not all((folder / name).is_file() for name in _MEMBERS):
        raise UnavailableError(f"{folder} could not be written; set FOLTR_CACHE to a directory that can")
    return folder


def without_last_query(text: bytes) -> bytes:
    """Return LETOR lines without those of the query that the last line belongs to."""
    lines = text.splitlines(keepends=True)
    last = _query_of(lines[-1]) if lines else b""
    while lines and _query_of(lines[-1]) == last:
        lines.pop()
    return b"".join(lines)


def _query_of(line: bytes) -> bytes:
    return line.split(None, 2)[1] if len(line.split(None, 2)) > 1 else b""


def _download(deadline: float) -> bytes:
    try:
        import httpx2
        from unearth import PackageFinder
        from unearth.auth import MultiDomainBasicAuth
        from unearth.fetchers import PyPIClient
    except ModuleNotFoundError as error:
        raise UnavailableError(f"fetching data needs unearth: {install_command('simulation')}") from error
    settings = _pip_settings()
    # The library's own fallback is the default index; no host is named here.
    index_urls = _index_urls(settings, PackageFinder().sources[0]["url"])
    links = [link for link in settings.get("find-links", []) if "://" in link or Path(link).exists()]
    certificates = settings.get("cert", [None])[0]
    # Any: the client does not match the protocol that its own library declares for it.
    session: Any = PyPIClient(
        trusted_hosts=settings.get("trusted-host", []),
        verify=ssl.create_default_context(cafile=certificates) if certificates else True,
        timeout=10.0,
        follow_redirects=True,
    )
    session.auth = MultiDomainBasicAuth(prompting=False, index_urls=index_urls)
    hint = "check the network and `pip config list`, or get MSLR-WEB10K yourself and give its Fold1 folder"
    try:
        with session:
            finder = PackageFinder(session, index_urls=index_urls, find_links=links, no_binary=[_PACKAGE])
            if not (index_urls or links):
                # The library adds its default index to an empty list, despite pip's no-index.
                finder.sources = []
            best = finder.find_best_match(f"{_PACKAGE}=={_VERSION}").best
            if best is None:
                raise UnavailableError(f"no configured package index has {_PACKAGE} {_VERSION}; {hint}")
            with session.get_stream(best.link.normalized) as response:
                response.raise_for_status()
                return read_within(response.iter_bytes(), deadline, _LARGEST_ARCHIVE)
    except (httpx2.HTTPError, OSError, ValueError) as error:
        # The name of the error only: its text may hold the index address, and that may hold a password.
        problem = type(error).__name__
        raise UnavailableError(f"fetching {_PACKAGE} {_VERSION} failed ({problem}); {hint}") from error


def read_within(chunks: Iterable[bytes], deadline: float, max_bytes: int) -> bytes:
    """Collect chunks until the end. TimeoutError past the deadline, ValueError above ``max_bytes``."""
    received = bytearray()
    for chunk in chunks:
        received += chunk
        if time.monotonic() > deadline:
            raise TimeoutError("the time limit was reached")
        if len(received) > max_bytes:
            raise ValueError("the archive is larger than it can be")
    return bytes(received)


def _index_urls(settings: dict[str, list[str]], default: str) -> list[str]:
    """Return where pip would look: the index (the library's default if none is set) and the extra ones after it."""
    if "no-index" in settings:
        return []
    return [*settings.get("index-url", [default])[:1], *settings.get("extra-index-url", [])]


def _pip_settings() -> dict[str, list[str]]:
    """Ask pip for its settings, files and environment together; without pip, read the environment alone."""
    try:
        listing = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"],
            capture_output=True,
            text=True,
            timeout=20.0,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        listing = ""
    return merge_pip_settings(listing, dict(os.environ))


def merge_pip_settings(listing: str, environment: dict[str, str]) -> dict[str, list[str]]:
    """Read the settings that say where packages come from; the environment overrides the files, as in pip.

    Args:
        listing: what `pip config list` prints: lines of section.key='values'.
        environment: of the process.

    Returns:
        the values of each setting that is present; in pip, several values are separated by white space.
    """
    settings: dict[str, list[str]] = {}
    for line in listing.splitlines():
        name, separator, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if separator and section in {"global", "install"}:
            settings[key] = " ".join(shlex.split(value)).split()
    for key in ("index-url", "extra-index-url", "find-links", "trusted-host", "cert", "no-index"):
        if value := environment.get("PIP_" + key.upper().replace("-", "_"), "").strip():
            settings[key] = value.split()
    if settings.get("no-index", [""])[0].lower() in {"0", "false", "no", "off"}:
        del settings["no-index"]
    return settings
