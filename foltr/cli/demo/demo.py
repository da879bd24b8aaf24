"""``foltr demo``: the whole system in one command, on real data; with ``--forget`` one of its devices
leaves, with ``--secure`` nobody sees what one of them has learned."""

import asyncio
import json as json_text
import signal
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from foltr.cli import options
from foltr.cli.demo.learning_demo import Demo
from foltr.cli.experiments.simulation_options import check_writable
from foltr.cli.output import configure_logging, console, to_plain
from foltr.cli.settings import load_settings, takes_settings
from foltr.errors import SettingsError
from foltr.secure.accounting import DEFAULT_EPSILON, LEAST_EPSILON, MOST_EPSILON

KEYS = (
    *("interactions", "method", "method_parameters", "exploration", "ranker", "hidden"),
    *("clicks", "dataset", "seed"),
)


@takes_settings(KEYS)
def demo(
    clients: Annotated[
        int | None,
        typer.Option(min=1, max=2000, help="Simulated devices", show_default="20, with --forget 10, with --secure 100"),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Rounds", show_default="50, with --forget 40, with --secure 20"),
    ] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="One device harms the model and then asks to be forgotten")
    ] = False,
    secure: Annotated[
        bool, typer.Option("--secure", help="Noised sums are all that anybody sees; a helper is killed, devices vanish")
    ] = False,
    mechanism: Annotated[str, typer.Option(help="Of --secure: gaussian, or gamma, with far more noise")] = "gaussian",
    noise_by: Annotated[str, typer.Option(help="Of gamma: helpers or clients draw the noise")] = "helpers",
    epsilon: Annotated[
        float, typer.Option(min=LEAST_EPSILON, max=MOST_EPSILON, help="Of --secure: for all rounds together")
    ] = DEFAULT_EPSILON,
    hostile: Annotated[
        int,
        typer.Option(
            min=0, max=2000, help="Of --secure: so many devices send what is far too long, with forged proofs"
        ),
    ] = 0,
    db: options.Db = None,
    broker: Annotated[
        str | None, typer.Option("--broker", help="Use this broker instead of starting the embedded one")
    ] = None,
    json: options.JsonFile = None,
    **flags: Any,
) -> None:
    """Run a federation on this machine: broker, federator and devices as real MQTT peers, on real data."""
    if forget and secure:
        raise SettingsError("--forget, --secure: one demonstration at a time")
    if hostile and not secure:
        raise SettingsError(f"--hostile {hostile}: it is of --secure; without it the federator sees who is hostile")
    what = "-forget" if forget else "-secure" if secure else ""
    settings = load_settings(
        db_url=db or f"sqlite:///foltr-demo{what}.sqlite",
        **flags,
        # A new federation every time, so that the first model really is the start.
        federation=f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}",
        log_level="error",
    )
    configure_logging(settings.log_level, settings.log_format)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    check_writable(json, "--json", replaced=False)
    n_clients, n_rounds = (10, 40) if forget else (100, 20) if secure else (20, 50)
    chosen = (settings, clients or n_clients, rounds or n_rounds, broker)
    shown: Demo
    if forget:
        from foltr.cli.demo.forgetting_demo import ForgettingDemo

        shown = ForgettingDemo(*chosen)
    elif secure:
        from foltr.cli.demo.secure_demo import SecureDemo
        from foltr.cli.demo.secure_setup import promise_of

        shown = SecureDemo(*chosen, promise_of(mechanism, noise_by, epsilon), hostile)
    else:
        shown = Demo(*chosen)
    results = asyncio.run(shown.run())
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
