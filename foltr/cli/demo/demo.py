"""``foltr demo``: the whole system in one command, on real data; with ``--forget`` one of its devices leaves."""

import asyncio
import json as json_text
import signal
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from foltr.cli import options
from foltr.cli.demo.learning_demo import Demo
from foltr.cli.experiments.simulation_options import check_writable
from foltr.cli.fields import takes_fields
from foltr.cli.output import configure_logging, console, to_plain
from foltr.cli.settings import Settings, load_settings
from foltr.errors import SettingsError

FIELDS = ("interactions", "method", "method_parameters", "ranker", "hidden", "clicks", "dataset", "seed")


@takes_fields(Settings, FIELDS)
def demo(
    clients: Annotated[
        int | None, typer.Option(min=1, max=2000, help="Simulated devices", show_default="20, with --forget 10")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds", show_default="50, with --forget 40")] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="One device harms the model and then asks to be forgotten")
    ] = False,
    db: options.Db = None,
    broker: Annotated[
        str | None, typer.Option("--broker", help="Use this broker instead of starting the embedded one")
    ] = None,
    json: options.JsonFile = None,
    **flags: Any,
) -> None:
    """Run a federation on this machine: broker, federator and devices as real MQTT peers, on real data."""
    settings = load_settings(
        db_url=db or f"sqlite:///foltr-demo{'-forget' if forget else ''}.sqlite",
        **flags,
        # A new federation every time, so that the first model really is the start.
        federation=f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}",
        log_level="error",
    )
    configure_logging(settings.log_level, settings.log_format)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    check_writable(json, "--json", replaced=False)
    kind: type[Demo] = Demo
    if forget:
        from foltr.cli.demo.forgetting_demo import ForgettingDemo

        kind = ForgettingDemo
    n_clients, n_rounds = (10, 40) if forget else (20, 50)
    results = asyncio.run(kind(settings, clients or n_clients, rounds or n_rounds, broker).run())
    if json is not None:
        text = json_text.dumps(to_plain(results), indent=2)
        try:
            json.write_text(f"{text}\n")
        except OSError as error:
            typer.echo(text)
            raise SettingsError(f"--json: {json} cannot be written: {error.strerror or error}") from error
        console.print(f"Results: {json}", soft_wrap=True, highlight=False)
    if forget:
        from foltr.cli.demo.departure import check_promise

        check_promise(results["forget"])
