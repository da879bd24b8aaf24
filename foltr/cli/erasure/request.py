"""``foltr erasure request``: have a client forgotten, on behalf of the operator or of the client."""

import asyncio
import base64
import os
import shlex
import time
from pathlib import Path
from typing import Annotated

from foltr.cli import options
from foltr.cli.fields import argument, option
from foltr.cli.operator.sending import ANSWER_S, send_order, send_unanswered
from foltr.cli.options import OperatorFolder
from foltr.cli.output import print_json, report, say, warn
from foltr.cli.progress import progress_reporter
from foltr.core.erasure.receipt import verify_receipt
from foltr.core.errors import DataError, SettingsError, UnavailableError
from foltr.core.operator.credentials import OPERATOR_USER, read_credentials
from foltr.core.operator.erasure_request_file import delete_request, request_file, save_request
from foltr.core.operator.folder import is_authority
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.core.protocol.codec import encode
from foltr.core.protocol.membership import Forget
from foltr.core.protocol.signing import key_to_text
from foltr.core.protocol.topics import ClientTopic, Topics, check_name
from foltr.operations.erasure_answers import ErasureAnswers, SignedErasureRequest, send, state_of
from foltr.operations.operator_access import open_authority, redirect

# How long to wait for the receipt: with --wait, and by default with --credentials.
_WAIT_S, _WISH_S = 3600.0, 60.0
# Between two tries other commands can take the session.
_PAUSE_S = 1.0


def request(
    client: Annotated[str | None, argument("The client's name; not needed with --credentials")] = None,
    credentials: Annotated[Path | None, option("The client's own credentials: it asks for itself")] = None,
    wait: Annotated[bool, option("Wait until the client is forgotten, and print its receipt", "--wait")] = False,
    timeout: Annotated[
        float | None,
        option("Seconds until it gives up [3600 with --wait, else 60 with --credentials]", min=0.0, max=30 * 86_400),
    ] = None,
    receipt: Annotated[Path | None, option("Write the receipt to this file")] = None,
    print_payload: Annotated[
        bool, option("Send nothing; print the message and how to send it with mosquitto_pub", "--print-payload")
    ] = False,
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
    json: options.Json = False,
) -> None:
    """Erase a client's data and unlearn what the model learned from it. It cannot be undone.

    The operator's order is answered once the client has left the federation; --wait waits for the receipt. With
    --credentials the client asks for itself: the command always waits, and exits with 0 only if there is a receipt.
    Until then it keeps the request beside that file, and the same command sends it again. The name is not used
    again. With --credentials the command connects as that client: a broker with users disconnects a running device
    for a moment.
    """
    if receipt is not None and not wait and credentials is None:
        raise SettingsError("receipt: it exists only once the client is forgotten; add --wait")
    if receipt is not None and not os.access(receipt.parent, os.W_OK):
        raise SettingsError(f"receipt: {receipt.parent} is no folder that can be written to; name a file elsewhere")
    if timeout is None:
        timeout = _WAIT_S if wait else _WISH_S
    if not 0 < timeout <= 30 * 86_400:
        raise SettingsError(f"timeout: {timeout:g}; give more than 0 and at most {30 * 86_400} seconds")
    give_up_at = time.monotonic() + timeout
    wish = _by_client(client, credentials, broker) if credentials else _by_operator(client, operator, broker)
    if print_payload:
        _print_payload(wish, json=json)
        return
    kept = _keep(wish, json=json) if credentials else None
    if not credentials:
        _order(wish, operator, broker, give_up_at if wait else None)
        if not wait:
            state = asyncio.run(state_of(wish))
            say(
                f"Order {wish.number} is obeyed: {wish.client_id} is out of {wish.federation}. It is {state}: "
                f"{state.meaning}. To get its receipt, once the model without it is in service, add --wait"
            )
            return
    answers = ErasureAnswers(wish)
    with progress_reporter("waiting for the broker", changes=True) as tell:
        try:
            left_s = max(0.1, give_up_at - time.monotonic())
            notice, federator_key = asyncio.run(send(wish, answers, left_s, tell))
        except DataError:
            if kept is not None:
                delete_request(kept)  # refused: the device continues as before
            raise
        except UnavailableError as error:
            if json:
                print_json({"client": wish.client_id, "state": str(answers.forget_state), "receipt": None})
            if not credentials:
                raise
            raise UnavailableError(f"{error}. {_what_is_open(credentials, kept)}") from error
    text = "" if notice.receipt is None else notice.receipt.decode()
    done = text or f"Forgotten: {wish.client_id}; {notice.detail}"
    if receipt is not None:
        _write(receipt, text, wish.client_id)
        key = _key_of_receipt(text, wish, federator_key)
        check = shlex.join(("foltr", "erasure", "verify", str(receipt), "--key", key))
        done = f"Forgotten: {wish.client_id} of {wish.federation}; check it: {check}"
    if kept is not None:
        delete_request(kept)
    report(json, {"client": wish.client_id, "state": str(notice.code), "receipt": text or None}, done)


def _write(receipt: Path, text: str, client: str) -> None:
    try:
        receipt.write_text(text + "\n", encoding="ascii")
    except OSError as error:
        raise SettingsError(
            f"receipt: {receipt}: {error.strerror}. {client} is forgotten; ask again with another file"
        ) from error


def _keep(wish: "SignedErasureRequest", *, json: bool) -> Path | None:
    """Save a client's request beside its credentials before sending. Return the file, or None if that fails."""
    path = request_file(wish.key_file)
    if save_request(path, wish.credentials):
        return path
    if not json:
        warn(
            f"warning: the request cannot be kept beside {wish.key_file}, so a device started with it does not "
            "know of it"
        )
    return None


def _what_is_open(credentials: Path, kept: Path | None) -> str:
    """Say where the request is saved and what to type. The text has no final full stop."""
    again = shlex.join(("foltr", "erasure", "request", "--credentials", str(credentials), "--wait"))
    if kept is None:
        return f"Only the broker keeps the request, and may lose it. Until there is a receipt, run again: {again}"
    return (
        f"The request is kept in {kept}. A device started with {credentials} sends it again, and nothing else. "
        f"Until there is a receipt, run again: {again}"
    )


def _key_of_receipt(text: str, wish: "SignedErasureRequest", newest: bytes) -> str:
    """Return what names the receipt's signing key: the file or, after a rotation, the federator's newest key."""
    given = wish.credentials.federator_public_key
    if newest == given:
        return str(wish.key_file)
    try:
        verify_receipt(text, given)
    except (DataError, SettingsError):
        return key_to_text(newest)
    return str(wish.key_file)


def _by_operator(client: str | None, folder: Path, broker: str | None) -> "SignedErasureRequest":
    if client is None:
        raise SettingsError("client: name the client to forget, or give its --credentials")
    check_name("client", client)
    if not is_authority(folder):
        raise SettingsError(
            f"operator: {folder} is not an operator's folder; name it with --operator (`foltr device enrol` makes "
            "one), or ask as the client itself, with --credentials FILE"
        )
    with open_authority(folder) as authority:
        register = authority.register
        known = client in register.enrolled or client in register.revoked or register.is_forgotten(client)
        if not known:
            roster = command_in(folder, "foltr operator roster")
            warn(
                f"warning: {client} was never enrolled with {folder} (see: {roster}). The order is sent anyway: "
                "the federator erases everything under this name for ever; if it has nothing, it answers "
                "unknown_client, and nothing changes"
            )
        order = authority.forget(client)
        return SignedErasureRequest(
            authority.federation,
            client,
            Topics(authority.federation).operator,
            order.payload,
            redirect(authority.operator.broker, broker),
            OPERATOR_USER,
            authority.operator,
            folder / "operator.json",
            f"the operator's folder {folder}",
            retained=False,
            number=order.number,
        )


def _order(wish: "SignedErasureRequest", folder: Path, broker: str | None, give_up_at: float | None) -> None:
    """Send an order until it is obeyed.

    Args:
        give_up_at: retry until then; None tries once. Between two tries other commands can take the session.

    Raises:
        UnavailableError: no answer in time; the order is kept.
        DataError: the federator refuses it.
    """
    while True:
        try:
            with open_authority(folder) as authority:
                signed = authority.orders.get(wish.number)
                if signed is not None and signed.payload == wish.payload:
                    send_order(authority, signed, broker)
                elif authority.orders.unanswered():
                    # Another command has sent it meanwhile, or renumbered it.
                    send_unanswered(authority, broker)
                return
        except UnavailableError:
            if give_up_at is None or time.monotonic() + ANSWER_S > give_up_at:
                raise
            time.sleep(_PAUSE_S)


def _by_client(client: str | None, path: Path, broker: str | None) -> "SignedErasureRequest":
    own = read_credentials(path, "device")
    if client not in (None, own.name):
        raise SettingsError(f"client: {path} is of {own.name}, not of {client}")
    topic = Topics(own.federation).client(own.name, ClientTopic.FORGET)
    payload = encode(Forget(federation=own.federation, client_id=own.name), topic, 0, own.key)
    return SignedErasureRequest(
        own.federation,
        own.name,
        topic,
        payload,
        redirect(own.broker, broker),
        f"foltr-forget:{own.federation}:{own.name}",
        own,
        path,
        f"the credentials file {path}",
        retained=True,
    )


def _print_payload(wish: "SignedErasureRequest", *, json: bool) -> None:
    text = base64.b64encode(wish.payload).decode()
    report(json, {"topic": wish.topic, "payload": text, "retain": wish.retained}, text)
    if json:
        return
    options_ = f"-t {wish.topic} -q 1{' -r' if wish.retained else ''} -s"
    warn(
        f"Pipe the line above, which is base64, to: base64 -d | mosquitto_pub {options_}  (add -h, -p, -u, -P, "
        "--cafile as the broker needs them)"
    )
