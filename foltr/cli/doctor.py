"""``foltr doctor``: what is missing, and what to do about it."""

import asyncio
import importlib.util
import platform
import shutil
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import typer

from foltr import __version__
from foltr.cli import options
from foltr.cli.output import console, print_json, require_existing
from foltr.errors import FoltrError, UnavailableError
from foltr.settings import Settings, load_settings

_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Finding:
    """One thing looked at: ``ok``, ``problem``, or ``absent`` for an optional part."""

    what: str
    state: str
    detail: str


def doctor(
    broker: options.Broker = None,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Check the installation, the broker and the database. Exits with 1 if something is wrong."""
    settings = load_settings(broker_url=broker, db_url=db)
    findings = [
        Finding("foltr", "ok", f"{__version__} on Python {platform.python_version()}"),
        *_packages(),
        asyncio.run(_check("broker", lambda: _broker(settings))),
        asyncio.run(_check("database", lambda: _database(settings))),
    ]
    if json:
        print_json(findings)
    else:
        colours = {"ok": "green", "problem": "red", "absent": "yellow"}
        for finding in findings:
            console.print(f"[{colours[finding.state]}]{finding.state:8}[/] {finding.what}: ", end="", highlight=False)
            console.print(finding.detail, markup=False, highlight=False, soft_wrap=True)
    if any(finding.state == "problem" for finding in findings):
        raise typer.Exit(1)


def _packages() -> list[Finding]:
    parts = {
        "federator": ("sqlalchemy", "alembic", "aiosqlite"),
        "postgres": ("asyncpg",),
        "simulation": ("iotcore", "numba", "sklearn", "unearth"),
    }
    findings = []
    for extra, modules in parts.items():
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        if missing:
            detail = f"no {', '.join(missing)}; if this machine needs it: pip install 'foltr[{extra}]'"
            findings.append(Finding(f"extra {extra}", "absent", detail))
        else:
            findings.append(Finding(f"extra {extra}", "ok", "installed"))
    found = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin")
    detail = found or "not on this machine; needed only where the broker runs"
    return [*findings, Finding("mosquitto", "ok" if found else "absent", detail)]


async def _check(what: str, look: Callable[[], Awaitable[str]]) -> Finding:
    try:
        async with asyncio.timeout(2 * _TIMEOUT_S):
            return Finding(what, "ok", await look())
    except FoltrError as error:
        return Finding(what, "problem", str(error))
    except TimeoutError:
        return Finding(what, "problem", f"no answer within {2 * _TIMEOUT_S:g} s")


async def _broker(settings: Settings) -> str:
    """Connect and send a message round trip at QoS 1."""
    from broker.address import BrokerAddress
    from broker.link import InboundMessage, MqttLink

    address = BrokerAddress.parse(settings.broker_url)
    nonce = uuid.uuid4().hex
    topic = f"foltr/doctor/{nonce}"
    back = asyncio.Event()

    def received(message: InboundMessage) -> None:
        if message.payload == nonce.encode():
            back.set()

    link = MqttLink(
        address,
        client_id=f"foltr-doctor-{nonce[:8]}",
        subscriptions=[topic],
        on_message=received,
        persistent=False,
        give_up_after_s=0.0,
    )
    async with link:
        await link.wait_connected(_TIMEOUT_S)
        await link.publish(topic, nonce.encode())
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await back.wait()
        except TimeoutError as error:
            raise UnavailableError(f"MQTT broker {address}: it took a message and did not deliver it") from error
    return f"{address} answers"


async def _database(settings: Settings) -> str:
    if importlib.util.find_spec("sqlalchemy") is None:
        return "not checked: a device has none (extra federator)"
    from storage.database import Database
    from storage.migrate import require_head

    require_existing(settings.db_url)
    async with await Database.connect(settings.db_url) as database:
        await require_head(database)
        return f"{database.location} is up to date"
