"""The generated Mosquitto configuration: what it says, where it is refused, and that the real broker keeps data."""

import asyncio
import contextlib
import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from support.broker_links import Inbox, connected
from support.servers import MosquittoServer

from foltr.broker.broker_records import Mode
from foltr.broker.link import MqttLink
from foltr.broker.mosquitto import MosquittoSettings, mosquitto_config, write_config
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES

# Three times the queue of a Mosquitto with its default settings.
N_MESSAGES = 3000
TOPIC = "foltr/v1/test/clients/d1/updates"

FOLDER = Path("/etc/foltr")
SETTINGS = MosquittoSettings(FOLDER, Path("/var/lib/foltr-broker"))
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")


def options(text: str) -> list[str]:
    """The lines that Mosquitto reads."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def as_me(folder: Path) -> MosquittoSettings:
    """Settings with the data below ``folder``, for a Mosquitto that stays the user who runs the tests."""
    return MosquittoSettings(folder, folder / "data", user=pwd.getpwuid(os.geteuid()).pw_name)


def test_replaces_the_defaults_that_lose_data() -> None:
    """And limits connections when asked for: an option of the listener, so it stands below one."""
    assert {
        "max_queued_messages 100000",
        "persistence true",
        "persistence_location /var/lib/foltr-broker/",
        "set_tcp_nodelay true",
    } <= set(options(mosquitto_config(SETTINGS)))
    assert "max_connections" not in mosquitto_config(SETTINGS)
    lines = options(mosquitto_config(replace(SETTINGS, max_connections=500)))
    assert lines[:2] == ["listener 1883 127.0.0.1", "max_connections 500"]


def test_an_anonymous_listener_on_a_network_is_refused_unless_asked_for() -> None:
    for listen in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        assert "allow_anonymous true" in options(mosquitto_config(replace(SETTINGS, listen=listen)))
    for listen in ("0.0.0.0", "::", "192.168.1.2", "broker.example"):  # noqa: S104
        settings = replace(SETTINGS, listen=listen)
        with pytest.raises(SettingsError, match="--allow-anonymous-network"):
            mosquitto_config(settings)
        text = mosquitto_config(replace(settings, allow_anonymous_network=True))
        assert "WARNING: no access control" in text.split("listener", 1)[0].replace("\n# ", " ")


def test_refuses_what_mosquitto_would_misread() -> None:
    wrong: dict[str, list[object]] = {
        "listen": ["127.0.0.1\nallow_anonymous true", ""],
        "port": [0, 65536],
        "data_dir": [Path("relative"), Path("/srv/a\nuser root")],
        "user": ["a b"],
        "max_connections": [0],
        "folder": [Path("folder"), Path("/folder\nuser root")],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(SettingsError, match=name):
                mosquitto_config(replace(SETTINGS, **{name: value}))  # type: ignore[arg-type]


def test_a_listener_that_asks_for_names_may_be_on_a_network() -> None:
    """Everybody has to say who they are, with passwords as with certificates."""
    for mode in Mode:
        text = mosquitto_config(replace(SETTINGS, listen="0.0.0.0", mode=mode))  # noqa: S104
        assert {"allow_anonymous false", "acl_file /etc/foltr/acl"} <= set(options(text))
        assert "WARNING" not in text


TLS = {
    "cafile /etc/foltr/ca.crt",
    "certfile /etc/foltr/server.crt",
    "keyfile /etc/foltr/server.key",
    "tls_version tlsv1.2",
}
IDENTITY = {"require_certificate true", "use_identity_as_username true", "crlfile /etc/foltr/ca.crl"}
PASSWORDS = {"password_file /etc/foltr/passwords"}


@pytest.mark.parametrize(
    ("mode", "there"), [(None, set()), (Mode.PASSWORDS, PASSWORDS | TLS), (Mode.MTLS, TLS | IDENTITY)]
)
def test_each_way_in_has_its_options(mode: Mode | None, there: set[str]) -> None:
    """All that it needs, and none that is another's."""
    given = set(options(mosquitto_config(replace(SETTINGS, mode=mode))))
    assert given & (TLS | IDENTITY | PASSWORDS) == there
    assert ("use_username_as_clientid true" in given) == (mode is not None)


def test_replaces_a_different_file_only_when_forced(tmp_path: Path) -> None:
    settings = as_me(tmp_path)
    path = write_config(settings)
    assert path == tmp_path / "mosquitto.conf"
    assert settings.data_dir.is_dir()
    assert write_config(settings) == path
    path.write_text("port 1\n")
    with pytest.raises(SettingsError, match="--force"):
        write_config(settings)
    assert path.read_text() == "port 1\n"
    write_config(settings, force=True)
    assert path.read_text() == mosquitto_config(settings)


def test_names_the_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UnavailableError, match=r"taken.*--out"):
        write_config(as_me(tmp_path / "taken"))


@only_root
def test_root_gives_the_data_to_the_user_mosquitto_becomes() -> None:
    folder = Path(tempfile.mkdtemp(prefix="foltr-mosquitto-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        write_config(replace(as_me(folder), user="nobody"))
        assert (folder / "data").owner() == "nobody"
    finally:
        shutil.rmtree(folder)


@only_root
def test_root_is_told_when_that_user_cannot_reach_the_data(tmp_path: Path) -> None:
    """Mosquitto itself would start, and lose everything at its first restart."""
    tmp_path.chmod(0o700)
    with pytest.raises(SettingsError, match=r"nobody, who cannot enter .*--out"):
        write_config(replace(as_me(tmp_path), user="nobody"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MosquittoServer]:
    """A real Mosquitto that runs on the generated configuration."""
    server = MosquittoServer(tmp_path)
    server.config = write_config(replace(as_me(tmp_path / "generated"), port=server.port))
    server.start()
    yield server
    server.stop()


def test_mosquitto_has_nothing_to_remark(server: MosquittoServer) -> None:
    """What is said at each start for nothing hides what matters. (But an access list, and root, are remarked on.)"""
    server.stop()
    remarks = [line for line in server.log.read_text().splitlines() if re.search("Note:|Warning|Error", line)]
    assert not [line for line in remarks if "run as root" not in line]


def subscribed(url: str, inbox: Inbox | None = None) -> AbstractAsyncContextManager[MqttLink]:
    """A persistent session, for the time of the block."""
    return connected(url, "subscriber", inbox, [TOPIC], persistent=True)


async def publish(url: str, payloads: list[bytes]) -> None:
    async with connected(url, "publisher") as link:
        for start in range(0, len(payloads), 500):
            await asyncio.gather(*(link.publish(TOPIC, payload) for payload in payloads[start : start + 500]))


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted by SIGTERM"])
async def test_keeps_what_was_sent_while_the_subscriber_was_away(server: MosquittoServer, restart: bool) -> None:
    """All of it, once, where the default settings would drop two thirds; also the largest message."""
    async with subscribed(server.url):
        pass
    sent = [b"%04d" % number + bytes(540) for number in range(N_MESSAGES)] + [bytes(MAX_MESSAGE_BYTES)]
    await publish(server.url, sent)
    if restart:
        server.stop()
        server.start()
    inbox = Inbox()
    async with subscribed(server.url, inbox) as link:
        assert sorted(await inbox.payloads(len(sent))) == sorted(sent)
        await link.publish(TOPIC, b"last")
        assert await inbox.payloads(1) == [b"last"]


async def test_a_full_queue_leaves_room_and_who_fills_the_rest_is_thrown_out(tmp_path: Path) -> None:
    """An absent federator's full queue throws nobody out; who retains without end is out, and the others go on."""
    server = scaled_down(tmp_path)
    server.start()
    try:
        async with subscribed(server.url):
            pass
        await publish(server.url, [b"%04d" % number + bytes(2000) for number in range(3000)])
        assert "Outgoing messages are being dropped" in server.log.read_text()
        inbox = Inbox()
        async with subscribed(server.url, inbox):
            await inbox.payloads(2000)
            assert "out of memory" not in server.log.read_text()
            assert await retain_without_end(server.url) < 8 * 1024**2
            assert "Client rogue disconnected due to out of memory" in server.log.read_text()
            await publish(server.url, [b"last"])
            while (await inbox.next()).payload != b"last":
                pass
    finally:
        server.stop()


def scaled_down(folder: Path) -> MosquittoServer:
    """A Mosquitto on the generated configuration with both limits a 256th of what they are, which logs connections."""
    server = MosquittoServer(folder)
    server.config = write_config(replace(as_me(folder / "generated"), port=server.port))
    lines = [
        f"{name} {int(value) // 256}" if (name := line.split(" ")[0]) in ("memory_limit", "max_queued_bytes") else line
        for line in server.config.read_text().splitlines()
        for value in line.split(" ")[-1:]
    ]
    server.config.write_text("\n".join(lines).replace("connection_messages false", "connection_messages true"))
    return server


async def retain_without_end(url: str) -> int:
    """Retain messages on ever more topics until the broker has had enough; returns the bytes that it took."""
    n_bytes = 0
    async with connected(url, "rogue") as link:
        with contextlib.suppress(UnavailableError):
            for number in range(1000):
                await link.publish(f"rubbish/{number}", bytes(100_000), retain=True)
                n_bytes += 100_000
    return n_bytes


async def test_the_log_names_nobody_who_connects(server: MosquittoServer) -> None:
    """It outlives a client that is forgotten."""
    await publish(server.url, [b"first"])
    async with subscribed(server.url):
        pass
    server.stop()
    assert "connected" not in server.log.read_text()
    assert "subscriber" not in server.log.read_text()


@only_root
def test_the_brokers_user_reads_what_it_needs_whatever_the_umask_is(tmp_path: Path) -> None:
    """Root writes its files for itself under umask 077; Mosquitto reads its configuration again at each reload."""
    tmp_path.chmod(0o755)
    settings = MosquittoSettings(tmp_path / "above" / "config", tmp_path / "above" / "config" / "data", uid=1883)
    before = os.umask(0o077)
    try:
        path = write_config(settings)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
    assert {folder.stat().st_mode & 0o777 for folder in (path.parent, path.parent.parent)} == {0o755}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_for_an_image_are_its_users_by_number(tmp_path: Path) -> None:
    """Also where this machine has no such user, and wherever sessions are kept."""
    settings = MosquittoSettings(tmp_path / "config", tmp_path / "elsewhere" / "data", uid=1883)
    write_config(settings)
    status = settings.data_dir.stat()
    assert (status.st_uid, status.st_gid) == (1883, 1883)
    assert f"persistence_location {settings.data_dir}/" in (tmp_path / "config" / "mosquitto.conf").read_text()
