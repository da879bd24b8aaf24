"""``foltr broker``: the embedded broker, and a Mosquitto configuration."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from foltr.broker.broker_records import CONFIG_NAME, PLUGIN_NAME, RECORD_NAME, Mode, read_record
from foltr.broker.mosquitto import MosquittoSettings, is_loopback, write_config
from foltr.broker.provision import provision_broker, reload_broker
from foltr.cli import options
from foltr.cli.fields import option
from foltr.cli.output import say
from foltr.cli.settings import load_settings
from foltr.core.errors import SettingsError
from foltr.core.operator.folder import is_authority, open_authority
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.core.user_files import resolve

PORT, TLS_PORT = 1883, 8883
HOSTS = ["localhost", "127.0.0.1"]


def run(
    port: Annotated[int, option("Port on the loopback interface", min=1, max=65535)] = PORT,
    websocket_port: Annotated[
        int | None,
        option("Port for MQTT over WebSockets, for pages in this machine's browsers; default: none", min=1, max=65535),
    ] = None,
) -> None:
    """Run the embedded broker until interrupted. For one machine: it has no access control."""
    from foltr.broker.embedded import embedded_broker

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with embedded_broker(port, websocket_port) as address:
            pages = "" if websocket_port is None else f" and ws://{address.host}:{websocket_port}"
            say(f"broker: {address}{pages} (loopback only, no access control, nothing kept on disk)")
            say("Interrupt with Ctrl-C. For more than one machine: foltr broker config --help")
            signal.pause()
    except KeyboardInterrupt:
        say("broker stopped")


def config(
    out: Annotated[Path, option("Directory to write mosquitto.conf into")] = Path("mosquitto"),
    port: Annotated[
        int | None, option(f"Port to listen on; default: {PORT}, {TLS_PORT} with --tls", min=1, max=65535)
    ] = None,
    listen: Annotated[str, option("Address to listen on")] = "127.0.0.1",
    tls: Annotated[bool, option("Encrypt, and ask every client for a password", "--tls")] = False,
    mtls: Annotated[
        bool, option("Encrypt, and ask every client for a certificate in place of a password", "--mtls")
    ] = False,
    host: Annotated[
        list[str] | None,
        option(
            "With --tls: a name or address that devices connect to, may be repeated; the first one is in the "
            f"address they are given; default: {', '.join(HOSTS)}"
        ),
    ] = None,
    federation: options.Federation = None,
    operator: Annotated[
        Path | None,
        option(f"With --tls: directory for the authority's key and credentials; default: {DEFAULT_OPERATOR_FOLDER}"),
    ] = None,
    max_connections: Annotated[
        int | None, option("Clients at one time; default: no limit", min=1, max=2**31 - 1)
    ] = None,
    user: Annotated[str, option("User that Mosquitto runs as when root starts it")] = "mosquitto",
    uid: Annotated[
        int | None,
        option(
            "Number of that user, for an image: root makes it the owner of the files; default: by name",
            min=0,
            max=2**32 - 2,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, option("Where Mosquitto keeps sessions and its pid; default: data in the directory")
    ] = None,
    plugin: Annotated[
        Path | None,
        option(
            "With --tls: a foltr_subscriptions.so built on another machine; default: built here",
            metavar="FILE",
        ),
    ] = None,
    allow_anonymous_network: Annotated[
        bool, option("Let anyone who reaches a non-loopback address take part", "--allow-anonymous-network")
    ] = False,
    force: Annotated[bool, option("Replace a configuration that differs", "--force")] = False,
) -> None:
    """Write a Mosquitto configuration that keeps messages and sessions; with --tls only enrolled users get in.

    You can run it again: keys, users and passwords stay, and a certificate near its end is renewed.
    """
    folder = resolve(out)
    encrypted = tls or mtls
    settings = MosquittoSettings(
        folder,
        listen=listen,
        port=port or (TLS_PORT if encrypted else PORT),
        data_dir=resolve(data_dir) if data_dir is not None else folder / "data",
        mode=Mode.MTLS if mtls else Mode.PASSWORDS if tls else None,
        allow_anonymous_network=allow_anonymous_network,
        max_connections=max_connections,
        user=user,
        uid=uid,
    )
    if encrypted:
        given = load_settings(federation=federation)
        of_operator = operator or DEFAULT_OPERATOR_FOLDER
        known = None if "federation" in given.model_fields_set else _federation_of(of_operator)
        settings = replace(settings, federation=known or given.federation)
        _provision(out, of_operator, settings, host or HOSTS, plugin=plugin, force=force)
        return
    if host or operator or plugin:
        raise SettingsError("host, operator, plugin: these need --tls or --mtls; add one of them, or leave them out")
    path = write_config(settings, force=force)
    say(f"wrote {path}; start it with: mosquitto -c {path}")


def _provision(
    out: Path,
    operator: Path,
    settings: "MosquittoSettings",
    hosts: list[str],
    *,
    plugin: Path | None,
    force: bool,
) -> None:
    kept = settings.data_dir / "mosquitto.db"
    granted_all = kept.exists() and not (out / PLUGIN_NAME).exists()
    record = provision_broker(operator, settings, hosts=hosts, plugin=plugin, force=force)
    federator, mine = operator / "federator.broker.json", operator / "operator.broker.json"
    lines = [
        f"wrote {out} for Mosquitto. It stays on the broker's machine; server.key in it is secret.",
        f"wrote {operator}: keep it private and backed up, because ca.key in it admits users.",
        f"  {federator} (secret) is for the federator, {mine} for you; ca.crt is public.",
        f"Devices will connect to {record.broker_url}.",
    ]
    if is_loopback(settings.listen) and not all(is_loopback(host) for host in hosts):
        lines.append(f"But it listens on {settings.listen} only: add --listen 0.0.0.0 for other machines.")
    if reload_broker(operator):
        lines.append("The running broker reloads this; a changed listener or limit needs a restart.")
    else:
        lines.append(
            f"Start it with: mosquitto -c {out / CONFIG_NAME} (if it runs elsewhere, reload it: kill -HUP its pid)"
        )
    if granted_all:
        lines.append(
            f"The broker granted every subscription until now, and keeps them. Stop it, remove {kept}, start it "
            f"again, and run: {command_in(operator, 'foltr operator publish')}"
        )
    lines.append(f"Enrol a device with: {command_in(operator, 'foltr device enrol device-1')}")
    for line in lines:
        say(line)


def _federation_of(operator: Path) -> str | None:
    """Return the federation of an existing operator folder, from its broker record or its register."""
    if (operator / RECORD_NAME).exists():
        return read_record(operator).federation
    if is_authority(operator):
        with open_authority(operator) as authority:
            return authority.federation
    return None


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
