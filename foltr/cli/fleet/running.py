"""``foltr client``: simulated users on real edge clients, many in one process."""

import asyncio
import socket
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Final

import structlog
import typer

from foltr.cli import options
from foltr.cli.data import find_data
from foltr.cli.fields import Option, option
from foltr.cli.fleet.fleet import Fleet
from foltr.cli.fleet.slots import Slot, enrol, enrol_in_slot, take_enrolled_slot, take_new_slot
from foltr.cli.operator.identities import device_credentials, device_files
from foltr.cli.output import configure_logging
from foltr.cli.output import report as tell
from foltr.cli.progress import stop_on_signal
from foltr.cli.settings import Settings, load_settings, takes_settings
from foltr.core.alive_file import AliveFile
from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import read_credentials
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.topics import check_name
from foltr.core.user_files import file_name_of
from foltr.edge_client.options import Privacy
from foltr.edge_client.sums.privacy_limits import USUAL_PRIVACY, PrivacyLimits

log = structlog.get_logger(__name__)

RUN_KEYS: Final = (
    *("client_id", "credentials", "broker_url", "federation", "dataset", "clicks", "interactions", "store", "seed"),
    *("feature_schema", "give_up_after_s"),
)
RUN_OPTIONS: Final = {
    "feature_schema": Option(
        "--schema", "FILE", "The devices' feature schema as JSON, which scales the data's features; default: by query"
    ),
}
_MOST: Final = 2**31 - 1
Count = Annotated[int, option("Number of devices in one process, named ID-0001 and so on", min=1, max=10_000)]
MinCohort = Annotated[
    int, option("Take part only in secure sums of at least this many clients", "--min-cohort", min=2, max=_MOST)
]
NRounds = Annotated[int | None, option("Number of rounds to take part in; default: all", "--rounds", min=1, max=_MOST)]


app = typer.Typer(help="Run simulated devices.", no_args_is_help=True)


def device_name(settings: Settings) -> str:
    """Return the prefix of the devices' names: as given, else from the credentials, else the machine's name."""
    named = None
    if settings.credentials is not None and not Path(settings.credentials).is_dir():
        named = read_credentials(Path(settings.credentials), "device").name
    return check_name("client_id", settings.devices.client_id or named or socket.gethostname())


def make_fleet(settings: Settings, name: str, count: int, n_rounds: int | None, **of_fleet: Any) -> "Fleet":
    """Load the data and prepare the devices.

    Args:
        of_fleet: more fields of the `Fleet`.
    """
    schema = None if settings.learning.feature_schema is None else FeatureSchema.read(settings.learning.feature_schema)
    data = find_data(settings.devices.dataset, settings.devices.seed, normalise=schema is None)
    if schema is not None and schema.n_features != data.train.n_features:
        raise SettingsError(
            f"schema: {settings.learning.feature_schema} has {schema.n_features} features, {data.description} "
            f"{data.train.n_features}"
        )
    names = [name] if count == 1 else [f"{name}-{i:04d}" for i in range(1, count + 1)]
    credentials = device_credentials(settings, names)
    federation = next((one.federation for one in credentials.values()), settings.federation)
    return Fleet(
        # Credentials name the broker, unless another is set.
        broker_url=None if credentials and "broker_url" not in settings.model_fields_set else settings.broker_url,
        federation=federation,
        credentials=credentials,
        credentials_files=device_files(settings, names),
        data=data,
        clicks=settings.devices.clicks,
        interactions=settings.learning.interactions,
        seed=settings.devices.seed,
        stores=_stores(settings, federation, names),
        n_rounds=n_rounds,
        give_up_after_s=settings.give_up_after_s,
        schema=schema,
        alive_file=AliveFile(settings.alive_file),
        **of_fleet,
    )


async def run_fleet(fleet: "Fleet", work: Coroutine[Any, Any, None] | None = None) -> None:
    """Run devices until they are done, or SIGTERM or Ctrl-C arrives.

    Args:
        work: what runs the fleet; default: its own `Fleet.run`.
    """
    task = asyncio.create_task(work or fleet.run())
    stop_on_signal(task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        log.info("clients_stopped", n_clients=len(fleet.stores))


def report(fleet: "Fleet", *, as_json: bool) -> None:
    """Print the counts of receipts that the devices got."""
    counts = dict(Counter(fleet.receipts))
    said = "receipts: " + (", ".join(f"{code} {n}" for code, n in counts.items()) or "none")
    tell(as_json, {"receipts": counts}, said)


def _stores(settings: Settings, federation: str, names: list[str]) -> dict[str, str]:
    if len(names) == 1:
        return {names[0]: settings.store or file_name_of(f"{federation}-{names[0]}", ".sqlite")}
    if settings.store is None:
        return dict.fromkeys(names, ":memory:")
    folder = Path(settings.store)
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"store: {folder} is a file; several devices need a folder")
    folder.mkdir(parents=True, exist_ok=True)
    return {name: str(folder / file_name_of(name, ".sqlite")) for name in names}


app.command("enrol")(enrol)


@app.callback()
def _group() -> None:
    """Run simulated devices."""


@app.command("run")
@takes_settings((*RUN_KEYS, "slots", "tokens", "alive_file"), RUN_OPTIONS)
def run(
    count: Count = 1,
    rounds: NRounds = None,
    min_cohort: MinCohort = USUAL_PRIVACY.min_cohort,
    json: options.Json = False,
    **flags: Any,
) -> None:
    """Run devices whose users issue queries of a data set and click as a click model says."""
    settings = load_settings(**flags)
    configure_logging(settings.log_level, settings.log_format)
    slot = _take_slot(settings, count)
    if slot is not None:
        at = {"client_id": slot.name, "store": str(slot.store)}
        if slot.credentials.exists():
            at["credentials"] = str(slot.credentials)
        settings = load_settings(**flags | at)
    privacy = Privacy(privacy_limits=PrivacyLimits(min_cohort=min_cohort))
    fleet = make_fleet(settings, device_name(settings), count, rounds, privacy=privacy)
    asyncio.run(run_fleet(fleet))
    if slot is not None and slot.name in fleet.forgotten:
        slot.close_for_ever()
    report(fleet, as_json=json)


def _take_slot(settings: Settings, count: int) -> Slot | None:
    """Return the slot of this replica. None if it shares no folder with others."""
    if settings.devices.slots is None:
        if settings.devices.tokens is not None:
            raise SettingsError("tokens: a device that enrols itself keeps its credentials in a slot; add --slots")
        return None
    given = settings.model_fields_set | settings.devices.model_fields_set
    if count > 1 or not {"store", "client_id", "credentials"}.isdisjoint(given):
        raise SettingsError("slots: a replica is one device, with the name, store and credentials of its slot")
    folder = Path(settings.devices.slots)
    slot = take_enrolled_slot(folder)
    if slot is None and settings.devices.tokens is not None:
        slot = enrol_in_slot(folder, Path(settings.devices.tokens), settings)
        if slot is None:
            raise SettingsError(
                f"tokens: no enrolled device of {folder} is free, and {settings.devices.tokens} has no unused "
                "token; the operator makes more: foltr device enrol CLIENT --token"
            )
    if slot is None and settings.broker_url.startswith("mqtts:"):
        raise SettingsError(
            f"slots: no enrolled device of {folder} is free; the operator enrols more: foltr device enrol CLIENT"
        )
    return slot or take_new_slot(folder, "device")
