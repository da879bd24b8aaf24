"""``foltr operator roster`` and ``rotate-key``, ``foltr device revoke``: who may take part, signed by the operator."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from foltr.broker.provision import reload_broker
from foltr.broker.users import withdraw_user
from foltr.cli import options
from foltr.cli.fields import argument, option
from foltr.cli.operator.sending import ask_newest, publish_roster, send_order, send_unanswered
from foltr.cli.options import OperatorFolder
from foltr.cli.output import print_json, print_rows, say
from foltr.core.errors import FoltrError, SettingsError, UnavailableError
from foltr.core.operator.authority import Authority
from foltr.core.operator.enrolment_rotation import begin_rotation
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.core.protocol.signed_orders import SignedOrder
from foltr.operations.issued_tokens import withdraw_useless
from foltr.operations.operator_access import RELOAD, broker_record, open_authority, tell_broker

_LISTED = (
    "Its certificate still connects to the broker, but its messages are refused. To cut it off, copy {}/ca.crl "
    "into the broker's folder, on its machine, and send the broker SIGHUP."
)


def roster(
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, show_all: options.All = False, json: options.Json = False
) -> None:
    """List the devices enrolled and revoked in an operator's folder."""
    from foltr.core.operator.folder import open_authority

    with open_authority(operator) as authority:
        register = authority.register
    rows = []
    for name in sorted(register.enrolled.keys() | register.revoked.keys()):
        device, void = register.enrolled.get(name), register.revoked.get(name)
        state, serial = ("revoked", None) if device is None else ("enrolled", device.serial)
        issued_at = None if device is None else datetime.fromtimestamp(device.issued_at, UTC)
        rows.append({"client_id": name, "state": state, "serial": serial, "issued_at": issued_at, "void_below": void})
    if json:
        print_json({"federation": register.federation, "version": register.roster_version, "clients": rows})
        return
    title = (
        f"Roster {register.roster_version} of {register.federation}: {len(register.enrolled)} enrolled, "
        f"{len(register.revoked)} with void keys"
    )
    everything = None if show_all else command_in(operator, "foltr operator roster --all")
    print_rows(rows, title=title, all_with=everything)


def revoke(
    client: Annotated[str, argument("The device's name")],
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
    offline: Annotated[
        bool, option("Only record it; send it with the next order, or with foltr operator send", "--offline")
    ] = False,
) -> None:
    """Revoke a device: the federator refuses its key as soon as it has the order."""
    with open_authority(operator) as authority:
        order = authority.revoke(client)
        recorded = f"{client} is revoked in {operator}"
        # Do both even if one fails. The federator's refusal is reported first.
        failures: list[FoltrError] = []
        if not offline:
            try:
                _send(authority, order, broker)
            except FoltrError as error:
                failures.append(error)
        try:
            note = _withdraw(operator, client)
        except (SettingsError, UnavailableError) as error:
            failures.append(type(error)(f"still a user of the broker: {error} Then run this again"))
        if failures:
            raise type(failures[0])(f"{recorded}, but " + "; and ".join(str(failure) for failure in failures))
    send = command_in(operator, "foltr operator send")
    say(f"{recorded}; send it with: {send}" if offline else f"{recorded}, and the federator knows it")
    if note:
        say(note)


def rotate_key(
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
    lose_newer: Annotated[
        bool, option("Accept an older copy of the folder; devices enrolled since are refused", "--lose-newer")
    ] = False,
) -> None:
    """Replace the operator's enrolment key in place; nobody has to enrol again, and the former key is void.

    Devices and helpers follow when they hear of it. The federator ends; start it with the new federator.json.
    """
    with open_authority(operator) as authority:
        if authority.orders.unanswered():
            send_unanswered(authority, broker)
        above = _catch_up(authority, broker, lose_newer=lose_newer)
        # Devices with open tokens would not trust an answer signed by the new key.
        authority.tokens.revoke(authority.tokens.records())
        if withdraw_useless(authority, time.time()):
            tell_broker(operator, lists_changed=True)
        begin_rotation(operator, authority.register, authority.orders, authority.operator, above)
    # Opening the folder completes the rotation, also after an interruption here.
    with open_authority(operator) as authority:
        key = authority.operator.enrolment_key
        say(f"{operator} has a new enrolment key: {key}. Make a backup of the folder")
        publish_roster(authority, broker)
        send_unanswered(authority, broker)
    say(f"The federator has ended. Start it with {operator / 'federator.json'}; devices and helpers need no new file")


def _catch_up(authority: "Authority", broker: str | None, *, lose_newer: bool) -> int:
    """Return the federator's newest order, 0 if it is away. Raises SettingsError if this folder is an older copy.

    The next key keeps the devices in the register. A federator ignores orders below the newest number it knows.
    """
    answer, register = ask_newest(authority, broker), authority.register
    if answer is None or (answer.newest <= authority.orders.newest and answer.newest_serial < register.next_serial):
        return 0
    if not lose_newer:
        raise SettingsError(
            f"operator: {authority.folder} is an older copy: it lacks order {answer.newest} and serial "
            f"{answer.newest_serial}, which the federator knows. Restore a newer copy; or add --lose-newer, which "
            "refuses devices enrolled since, until you enrol them again"
        )
    authority.renumber_above(answer.newest + 1, answer)
    return answer.newest


def _withdraw(folder: Path, client: str) -> str:
    """Remove a device from the broker's users. Return what the user still has to do."""
    if broker_record(folder) is None:
        return ""
    if not withdraw_user(folder, client):
        return _LISTED.format(folder)
    return "" if reload_broker(folder) else RELOAD


def _send(authority: "Authority", order: "SignedOrder | None", broker: str | None) -> None:
    """Send the order, or if it was given before, the unanswered rest of it; and publish the roster."""
    if order is not None:
        send_order(authority, order, broker)
    elif authority.orders.unanswered():
        send_unanswered(authority, broker)
    else:
        publish_roster(authority, broker)
