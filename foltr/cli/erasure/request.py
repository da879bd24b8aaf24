"""``foltr erasure request``: have a client forgotten, as the operator or as the client itself."""

import asyncio
import base64
import contextlib
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.cli import options
from foltr.cli.operator.access import OperatorFolder
from foltr.cli.operator.sending import ANSWER_S, send_order, send_unanswered
from foltr.cli.output import print_json, report, say, warn
from foltr.cli.progress import telling
from foltr.erasure.states import ForgetState
from foltr.errors import DataError, SettingsError, UnavailableError
from foltr.operator.credentials import OPERATOR_USER, BrokerAccess, Credentials, read_credentials
from foltr.operator.heard_keys import key_topics
from foltr.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.operator.wish_file import drop_wish, keep_wish, wish_file
from foltr.protocol.signing import key_to_text
from foltr.protocol.topics import ClientTopic, Topics, check_name
from operations.operator_access import open_authority, redirect

if TYPE_CHECKING:
    from foltr.protocol.receipts import ErasureNotice
    from operations.erasure_answers import Answers

_ANSWER_S = 3.0
# How long the receipt is waited for: with --wait, and else by who asks for itself.
_WAIT_S, _WISH_S = 3600.0, 60.0
_CONNECT_S = 5.0
# Between two visits at the broker while a model is made anew: twice as long each time.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
# How often it is looked whether there is something to tell.
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class _Request:
    """A signed wish to forget a client, and how it gets to the broker.

    Attributes:
        session: the MQTT client id to connect with.
        credentials: whose federator's notices are believed.
        key_file: credentials that name this key.
        named_by: what was given to find it, in words.
        retained: the broker holds it until it is obeyed.
        number: of the order, where it is one.
    """

    federation: str
    client_id: str
    topic: str
    payload: bytes
    access: BrokerAccess
    session: str
    credentials: Credentials
    key_file: Path
    named_by: str
    retained: bool
    number: int = 0


def request(
    client: Annotated[str | None, typer.Argument(help="The client's name; not needed with --credentials")] = None,
    credentials: Annotated[
        Path | None, typer.Option("--credentials", help="The client's own credentials: it asks for itself")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the client is forgotten, and print its receipt")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.0,
            max=30 * 86_400,
            help="Give up after so many seconds [3600 with --wait, else 60 with --credentials]",
        ),
    ] = None,
    receipt: Annotated[Path | None, typer.Option("--receipt", help="Write the receipt here, once there is one")] = None,
    print_payload: Annotated[
        bool, typer.Option("--print-payload", help="Send nothing; print what mosquitto_pub is to send")
    ] = False,
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
    json: options.Json = False,
) -> None:
    """Erase what a federation has of a client and unlearn what it has taught. It cannot be undone.

    An operator's order is answered once the client is out of the federation; with --wait the command waits for its
    receipt. With --credentials it always does, and exits with 0 only if there is one: until then the wish is kept
    beside that file, and the same command sends it again. The name is not used again. With --credentials the command
    connects as that client; where the broker has users, a running device is cut off for a moment each time, and
    connects again.
    """
    if receipt is not None and not wait and credentials is None:
        raise SettingsError("receipt: there is one once the client is forgotten; add --wait")
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
            state = asyncio.run(_state_of(wish))
            say(
                f"Order {wish.number} is obeyed: {wish.client_id} is out of {wish.federation}. It is {state}: "
                f"{state.meaning}. Get its receipt, once the model without it is in service, with --wait"
            )
            return
    answers = _answers_to(wish)
    with telling("waiting for the broker", changes=True) as tell:
        try:
            left_s = max(0.1, give_up_at - time.monotonic())
            notice, federator_key = asyncio.run(_send(wish, answers, left_s, tell))
        except DataError:
            if kept is not None:
                drop_wish(kept)  # it was refused: the device goes on as before
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
        drop_wish(kept)
    report(json, {"client": wish.client_id, "state": str(notice.code), "receipt": text or None}, done)


def _write(receipt: Path, text: str, client: str) -> None:
    try:
        receipt.write_text(text + "\n", encoding="ascii")
    except OSError as error:
        raise SettingsError(
            f"receipt: {receipt}: {error.strerror}. {client} is forgotten; ask again with another file"
        ) from error


def _keep(request: _Request, *, json: bool) -> Path | None:
    """Keep a client's wish beside its credentials before it is sent; the file, or None where it cannot be kept."""
    path = wish_file(request.key_file)
    if keep_wish(path, request.credentials):
        return path
    if not json:
        warn(
            f"warning: the wish cannot be kept beside {request.key_file}: a device that is started with it does not "
            "know of it"
        )
    return None


def _what_is_open(credentials: Path, kept: Path | None) -> str:
    """Say what keeps the wish, and what to type; without a full stop at the end."""
    again = shlex.join(("foltr", "erasure", "request", "--credentials", str(credentials), "--wait"))
    if kept is None:
        return (
            f"Nothing but the broker keeps the wish, which may lose it: until there is a receipt, type again: {again}"
        )
    return (
        f"The wish is kept in {kept}: a device that is started with {credentials} sends nothing else, and sends it "
        f"again. Until there is a receipt, type again: {again}"
    )


async def _state_of(request: _Request) -> ForgetState:
    """How far the erasure is that an order asked for: what the federation says, or what an answered order says."""
    answers = _answers_to(request)
    with contextlib.suppress(UnavailableError):
        await _visit(request, answers)
    return answers.forget_state if answers.answered else ForgetState.ERASING


def _key_of_receipt(text: str, request: _Request, newest: bytes) -> str:
    """What names the key that has signed a receipt: the file, or the federator's newest key where it has another."""
    from foltr.erasure.receipt import verify_receipt

    given = request.credentials.federator_public_key
    if newest == given:
        return str(request.key_file)
    try:
        verify_receipt(text, given)
    except (DataError, SettingsError):
        return key_to_text(newest)
    return str(request.key_file)


def _by_operator(client: str | None, folder: Path, broker: str | None) -> _Request:
    from foltr.operator.folder import is_authority

    if client is None:
        raise SettingsError("client: name the client that is to be forgotten, or give its --credentials")
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
                f"warning: {client} was never enrolled with {folder} (see: {roster}). The order is given all the same: "
                "whatever the federator has under this very name is erased for ever; if it has nothing, it answers "
                "unknown_client, and nothing changes"
            )
        order = authority.forget(client)
        return _Request(
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


def _order(request: _Request, folder: Path, broker: str | None, give_up_at: float | None) -> None:
    """See the order obeyed.

    Args:
        give_up_at: try again until then; None tries once. Between two tries other commands have their turn.

    Raises:
        UnavailableError: no answer in time; the order is kept.
        DataError: the federator refuses it.
    """
    while True:
        try:
            with open_authority(folder) as authority:
                signed = authority.orders.get(request.number)
                if signed is not None and signed.payload == request.payload:
                    send_order(authority, signed, broker)
                elif authority.orders.unanswered():
                    # Another command has sent it meanwhile, or has given it another number.
                    send_unanswered(authority, broker)
                return
        except UnavailableError:
            if give_up_at is None or time.monotonic() + ANSWER_S > give_up_at:
                raise
            time.sleep(_FIRST_PAUSE_S)


def _by_client(client: str | None, path: Path, broker: str | None) -> _Request:
    from foltr.protocol.codec import encode
    from foltr.protocol.membership import Forget

    own = read_credentials(path, "device")
    if client not in (None, own.name):
        raise SettingsError(f"client: {path} is of {own.name}, not of {client}")
    topic = Topics(own.federation).client(own.name, ClientTopic.FORGET)
    payload = encode(Forget(federation=own.federation, client_id=own.name), topic, 0, own.key)
    return _Request(
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


def _print_payload(request: _Request, *, json: bool) -> None:
    text = base64.b64encode(request.payload).decode()
    report(json, {"topic": request.topic, "payload": text, "retain": request.retained}, text)
    if json:
        return
    options_ = f"-t {request.topic} -q 1{' -r' if request.retained else ''} -s"
    warn(
        f"The line above, base64, is for: base64 -d | mosquitto_pub {options_}  (and -h, -p, -u, -P, --cafile as the "
        "broker needs them)"
    )


async def _send(
    request: _Request, answers: "Answers", timeout_s: float, on_progress: Callable[[str], None]
) -> "tuple[ErasureNotice, bytes]":
    """Publish the request again and again until the client is forgotten.

    Where the broker has users, one user is one session: whoever comes as the client, or as the operator, ends the
    connection of the device, or of another command. So nobody stays there to wait: each visit takes a moment, and who
    was thrown out comes back in between.

    Args:
        on_progress: told every second how far it is, in words.

    Returns:
        the notice that the client is forgotten, and the federator's public key.

    Raises:
        UnavailableError: no broker, or not forgotten in time.
        FoltrError: the federator refuses.
    """
    from broker.visit import visit_again

    telling = asyncio.create_task(_tell(answers, on_progress))
    try:
        async with asyncio.timeout(timeout_s):
            pause_s = _FIRST_PAUSE_S
            notice = await visit_again(lambda: _visit(request, answers))
            while notice is None:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                # The broker has the request: from now on one that is away for a while is no reason to give up.
                with contextlib.suppress(UnavailableError):
                    notice = await _visit(request, answers)
            return notice, answers.federator_key
    except TimeoutError as error:
        next_step = "" if request.retained else ". Ask again with --wait"
        if answers.answered and next_step:
            next_step = ". The request stands; ask again with --wait"
        raise UnavailableError(
            f"{request.client_id} is not forgotten after {timeout_s:g} s: {answers.state()}{next_step}"
        ) from error
    finally:
        telling.cancel()


def _answers_to(request: _Request) -> "Answers":
    from operations.erasure_answers import Answers

    return Answers(
        Topics(request.federation),
        request.client_id,
        request.credentials,
        request.named_by,
        # A device's wish is a message like its others.
        "message_refused" if request.retained else "order_refused",
    )


async def _tell(answers: "Answers", on_progress: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        on_progress(answers.state())


async def _visit(request: _Request, answers: "Answers") -> "ErasureNotice | None":
    """Publish the request once, and hear for a moment what the federator says to it.

    Returns:
        the notice that the client is forgotten, if it is.
    """
    from broker.address import BrokerAddress
    from broker.visit import visiting

    topics = Topics(request.federation)
    inbox = topics.client(request.client_id, ClientTopic.INBOX)
    heard = [*key_topics(request.federation), inbox, topics.round, f"{topics.root}/unlearning/+"]
    address = BrokerAddress.of(request.access)
    answers.begin()
    async with visiting(address, request.session, heard, answers.received, _CONNECT_S) as link:
        await link.publish(request.topic, request.payload, retain=request.retained)
        answers.sent()
        return await answers.notice(_ANSWER_S)
