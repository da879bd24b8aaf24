"""``foltr broker worker``: ingest workers are users of the broker, each with a session of its own, until removed."""

from pathlib import Path
from typing import Annotated

import typer

from foltr.cli import options
from foltr.cli.operator.access import OperatorFolder
from foltr.cli.output import report
from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import read_credentials, worker_user, write_credentials
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.core.user_files import file_name_of
from foltr.operations.operator_access import RELOAD, broker_record, open_authority, tell_broker


def worker(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the worker is called, e.g. 1")],
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    out: Annotated[
        Path | None, typer.Option("--out", help="Its credentials file; default: worker-NAME.json here")
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Let it in no more; stop the worker first, and delete its file")
    ] = False,
    json: options.Json = False,
) -> None:
    """Let an ingest worker in at the broker, or no more: federator.json, with a user of the broker of its own.

    It holds the federator's key, as a worker answers devices in its name. Run this again where the federator has
    another key or the broker another authority: the file is written anew, and its former password counts no more.
    """
    if remove:
        if out is not None:
            raise SettingsError("out: a worker that is let in no more gets no file; leave it out")
        _remove(name, operator, json=json)
    else:
        _let_in(name, operator, out or Path(file_name_of(f"worker-{name}", ".json")), json=json)


def _let_in(name: str, operator: Path, path: Path, *, json: bool) -> None:
    from foltr.broker.listed_users import provision_worker

    with open_authority(operator) as authority:
        if broker_record(operator) is None:
            raise SettingsError(
                "worker: this broker was not configured to know its users, so workers run with federator.json itself"
            )
        federator = operator / "federator.json"
        if not federator.exists():
            raise SettingsError(
                f"federator: bring a copy of federator.json into {operator}: a worker signs with its key"
            )
        credentials = read_credentials(federator, "federator")
        access = provision_worker(operator, name)
        write_credentials(path, credentials.model_copy(update={"name": worker_user(name), "broker": access}))
        told = tell_broker(operator, lists_changed=True)
    report(
        json,
        {"federation": authority.federation, "worker": name, "file": str(path), "broker_to_reload": not told},
        f"let the worker {name} of {authority.federation} in: {path}. Keep it as private as federator.json",
        f"Run it with: foltr federator run --role ingest --credentials {path.name}",
        "" if told else RELOAD,
    )


def _remove(name: str, operator: Path, *, json: bool) -> None:
    from foltr.broker.listed_users import withdraw_worker

    with open_authority(operator) as authority:
        is_out = withdraw_worker(operator, name)
        told = tell_broker(operator, lists_changed=True)
    who = f"the worker {name} of {authority.federation}"
    rotate = command_in(operator, "foltr federator rotate-key")
    report(
        json,
        {"federation": authority.federation, "worker": name, "is_out": is_out, "broker_to_reload": not told},
        f"{who} is let in no more" if is_out else f"{who} has no lines in the access list; it may still connect",
        f"Its file has the federator's key: was it exposed, run: {rotate}",
        "" if told else RELOAD,
    )
