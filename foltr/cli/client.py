"""``foltr client``: simulated users on real edge clients."""

import asyncio
from pathlib import Path
from typing import Any

import typer

from foltr.cli import options
from foltr.cli.fleet.running import (
    RUN_KEYS,
    RUN_OPTIONS,
    Count,
    MinCohort,
    NRounds,
    device_name,
    make_fleet,
    report,
    run_fleet,
)
from foltr.cli.fleet.slots import Slot, enrol, enrol_in_slot, take_enrolled_slot, take_new_slot
from foltr.cli.output import configure_logging
from foltr.cli.settings import Settings, load_settings, takes_settings
from foltr.core.errors import SettingsError
from foltr.edge_client.options import Privacy
from foltr.edge_client.sums.privacy_limits import USUAL_PRIVACY, PrivacyLimits

app = typer.Typer(help="Run simulated devices.", no_args_is_help=True)
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
    """Return the slot of this replica; None if it shares no folder with others."""
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
                f"tokens: no enrolled device of {folder} is free, nor is a token of {settings.devices.tokens} left; "
                "the operator makes more: foltr device enrol CLIENT --token"
            )
    if slot is None and settings.broker_url.startswith("mqtts:"):
        raise SettingsError(
            f"slots: no enrolled device of {folder} is free; the operator enrols more: foltr device enrol"
        )
    return slot or take_new_slot(folder, "device")
