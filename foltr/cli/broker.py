"""``foltr broker``: the embedded broker, and a Mosquitto configuration."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from foltr.cli.output import console

app = typer.Typer(help="Run the embedded MQTT broker, or configure Mosquitto.", no_args_is_help=True)


@app.command("run")
def run(
    port: Annotated[int, typer.Option(help="Port on the loopback interface", min=1, max=65535)] = 1883,
) -> None:
    """Run the embedded broker until interrupted. For one machine: it has no access control."""
    from broker.embedded import embedded_broker

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with embedded_broker(port) as address:
            console.print(f"broker: {address} (loopback only, no access control, nothing kept on disk)")
            console.print("Interrupt with Ctrl-C. For more than one machine: foltr broker config --help")
            signal.pause()
    except KeyboardInterrupt:
        console.print("broker stopped")


@app.command("config")
def config(
    out: Annotated[Path, typer.Option("--out", help="Directory to write mosquitto.conf into")] = Path("mosquitto"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on")] = 1883,
    listen: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    user: Annotated[str, typer.Option(help="Whom Mosquitto becomes when root starts it")] = "mosquitto",
    allow_anonymous_network: Annotated[
        bool,
        typer.Option(
            "--allow-anonymous-network",
            help="Let anyone who reaches a non-loopback address take part",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a configuration that differs")] = False,
) -> None:
    """Write a Mosquitto configuration that keeps what the defaults lose."""
    from broker.mosquitto import MosquittoSettings, write_config

    settings = MosquittoSettings(
        listen=listen,
        port=port,
        data_dir=out.resolve() / "data",
        allow_anonymous_network=allow_anonymous_network,
        user=user,
    )
    path = write_config(out, settings, force=force)
    console.print(f"wrote {path}; start it with: mosquitto -c {path}", soft_wrap=True)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
