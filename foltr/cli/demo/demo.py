"""``foltr demo``: the whole system in one command, on real data; and what other demonstrations have in common."""

import asyncio
import json as json_text
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from foltr.cli import options
from foltr.cli.demo.learning_demo import Demo
from foltr.cli.options import option
from foltr.cli.output import configure_logging, console, to_plain
from foltr.cli.settings import Settings, load_settings, takes_settings
from foltr.cli.writing import check_writable
from foltr.core.errors import SettingsError

KEYS: Final = (
    *("interactions", "method", "method_parameters", "exploration", "ranker", "hidden"),
    *("clicks", "dataset", "seed"),
)
Clients = Annotated[int, option("Simulated devices", min=1, max=2000)]
Rounds = Annotated[int, option("Rounds", min=1, max=100_000)]
Broker = Annotated[str | None, option("Use this broker instead of starting the embedded one", "--broker")]


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
    """Return the settings of a new federation, so that its first model really is the start."""
    settings = load_settings(
        db_url=db_url, **flags, federation=f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}", log_level="error"
    )
    configure_logging(settings.log_level, settings.log_format)
    return settings


def show(demonstration: Demo, json: Path | None) -> dict[str, Any]:
    """Run a demonstration and return its results, which go to a file, too, if one is named."""
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
