"""Gives an operator's folder a new enrolment key, in place; signatures of the former key count only if they are kept.

    enrolment-next.key    the next key, from before it is ordered until it replaces ``enrolment.key``
    succession.bin        the chain from the first key to the newest, and the documents that still count
    kept-enrolments.bin   the enrolments of former keys that still count

First the order is written, signed with the old key; everything else follows from it when the folder is opened next. The
old private key is then deleted.
"""

import base64
from pathlib import Path

from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import Credentials, read_credentials, write_credentials, write_secret
from foltr.core.operator.next_commands import command_in
from foltr.core.operator.order_log import OrderLog
from foltr.core.operator.register import Register, read_enrolment_key, read_private, write_register
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.membership import Enrolment
from foltr.core.protocol.operator_keys import (
    document_digest,
    enrolment_digest,
    issue_kept_enrolments,
    issue_link,
    issue_succession,
)
from foltr.core.protocol.orders import RotateEnrolmentKey
from foltr.core.protocol.roster import MAX_KEPT_ENROLMENTS, MAX_SUCCESSIONS, Succession, SuccessionLink
from foltr.core.protocol.signed_orders import SignedOrder
from foltr.core.protocol.signing import SigningKey, key_from_text, key_to_text
from foltr.core.protocol.topics import Topics
from foltr.core.user_files import FileKind, read_file

_OF_BOTH_SERVICES = ("federation", "enrolment_key", "federator_key", "federator_key_sequence")
_NEXT, _SUCCESSION, _KEPT = "enrolment-next.key", "succession.bin", "kept-enrolments.bin"


def begin_rotation(
    folder: Path, register: Register, orders: OrderLog, operator: Credentials, above: int = 0
) -> SignedOrder:
    """Order that the enrolment key has a successor; then open the folder again, which applies the order.

    Args:
        folder: the operator's, whose lock is held, with its register, its orders and the operator's credentials.
        above: the newest order that the federator knows.

    Raises:
        SettingsError: the federator's credentials are not in the folder, or not its newest; an order is unanswered, or
            more devices are enrolled than a list has room for.
    """
    links = _links(folder)
    if not (folder / "federator.json").exists():
        raise SettingsError(f"federator: copy federator.json into {folder}: it must trust the new key")
    # Everything that follows from the order needs this file, so report its faults first.
    federator = read_credentials(folder / "federator.json", "federator")
    if any(getattr(federator, name) != getattr(operator, name) for name in _OF_BOTH_SERVICES):
        raise SettingsError(
            f"federator: {folder / 'federator.json'} is not the newest of this operator; copy the newest one here"
        )
    if orders.unanswered():
        send = command_in(folder, "foltr operator send")
        raise SettingsError(f"orders: some are unanswered, which the new key would not sign: {send}")
    if len(register.enrolled) > MAX_KEPT_ENROLMENTS or len(links) >= MAX_SUCCESSIONS:
        raise SettingsError(
            f"enrolment key: it can be rotated in place up to {MAX_SUCCESSIONS} times, with up to "
            f"{MAX_KEPT_ENROLMENTS:,} devices; enrol them again with another folder"
        )
    if not (folder / _NEXT).exists():
        write_secret(folder / _NEXT, SigningKey.generate().to_text() + "\n")
    return orders.write(
        RotateEnrolmentKey(
            federation=register.federation,
            sequence=len(links) + 1,
            old_key=operator.enrolment_public_key,
            new_key=_next_key(folder).public,
        ),
        above,
    )


def complete_rotation(folder: Path, register: Register) -> Register:
    """Apply a rotation that was ordered; return the changed register.

    Safe to repeat: the next key takes its place last.
    """
    if not (folder / _NEXT).exists():
        return register
    old, new = read_enrolment_key(folder), _next_key(folder)
    operator = read_credentials(folder / "operator.json", "operator")
    orders = OrderLog(folder / "orders", register.federation, old, operator.operator_keys.stored())
    ordered = next((each for each in orders.after(0) if _gives(each, new.public)), None)
    if ordered is None:
        return register  # its beginning was interrupted before that
    links = [link for link in _links(folder) if not _leads_to(link, new.public)]
    links.append(issue_link(old, register.federation, len(links) + 1, new.public))
    documents = [document_digest(payload) for payload in (*_documents_in_force(folder), ordered.payload)]
    succession = issue_succession(new, register.federation, links, documents)
    kept = issue_kept_enrolments(new, register.federation, len(links), _enrolments(register))
    write_secret(folder / _KEPT, kept, replace=True)
    write_secret(folder / _SUCCESSION, succession, replace=True)
    federator = read_credentials(folder / "federator.json", "federator").with_succession(succession)
    text = base64.b64encode(kept).decode()
    write_credentials(folder / "federator.json", federator.model_copy(update={"kept_enrolments": text}))
    write_credentials(folder / "operator.json", operator.with_succession(succession))
    # Signed again: a roster of the former key is no longer trusted.
    unpublished = dict.fromkeys(("published_roster", "published_succession"), 0)
    register = register.model_copy(update={"roster_version": register.roster_version + 1, **unpublished})
    write_register(folder, register)
    (folder / "enrolment.pub").write_text(key_to_text(new.public) + "\n", encoding="ascii")
    (folder / _NEXT).replace(folder / "enrolment.key")
    return register


def kept_enrolments_of(folder: Path) -> str | None:
    """The list of enrolments of former keys in the credentials' form; None without any."""
    path = folder / _KEPT
    return base64.b64encode(read_file(path, FileKind.MESSAGE)).decode() if path.exists() else None


def n_successions(folder: Path) -> int:
    """How often the enrolment key was rotated."""
    return len(_links(folder))


def succession_messages(folder: Path, federation: str) -> list[tuple[str, bytes]]:
    """The messages to retain about the rotations, as (topic, payload): keys first, then what the newest one signs."""
    topics = Topics(federation)
    named = ((topics.operator_key, _SUCCESSION), (topics.kept_enrolments, _KEPT))
    return [(topic, read_file(folder / name, FileKind.MESSAGE)) for topic, name in named if (folder / name).exists()]


def _next_key(folder: Path) -> SigningKey:
    return SigningKey.from_text(read_private(folder / _NEXT))


def _links(folder: Path) -> list[bytes]:
    path = folder / _SUCCESSION
    return open_envelope(read_file(path, FileKind.MESSAGE)).read(Succession).links if path.exists() else []


def _leads_to(link: bytes, key: bytes) -> bool:
    return open_envelope(link).read(SuccessionLink).new_key == key


def _gives(signed: SignedOrder, key: bytes) -> bool:
    return isinstance(signed.order, RotateEnrolmentKey) and signed.order.new_key == key


def _documents_in_force(folder: Path) -> list[bytes]:
    """The newest documents of each kind, as signed; also the former policy that a round may still use."""
    newest = []
    for kind, name, n in (("policy", "policies", 3), ("schema", "schemas", 1), ("authorities", "authorities", 1)):
        paths = sorted((folder / name).glob(f"*.{kind}"))
        newest += [read_file(path, FileKind.MESSAGE) for path in paths[-n:]]
    statement = folder / "federator-key.bin"
    return [*newest, *([read_file(statement, FileKind.MESSAGE)] if statement.exists() else [])]


def _enrolments(register: Register) -> list[bytes]:
    return sorted(
        enrolment_digest(
            Enrolment(
                federation=register.federation,
                client_id=client_id,
                public_key=key_from_text("public_key", device.public_key),
                serial=device.serial,
                issued_at=device.issued_at,
                secure=device.secure,
            )
        )
        for client_id, device in register.enrolled.items()
    )
