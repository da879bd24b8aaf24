"""``foltr erasure verify``: whether a federator signed a receipt, checked offline by who doubts it."""

import hashlib
from typing import Annotated, Any

from foltr.cli import options
from foltr.cli.database import reason_as_json
from foltr.cli.fields import argument, option
from foltr.cli.output import report
from foltr.core.erasure.receipt import ErasureReceipt, verify_receipt
from foltr.core.erasure.states import NOTHING_UNLEARNED
from foltr.core.protocol.signing import key_to_text
from foltr.operations.receipt_files import public_key_of, read_receipt

KEY_HELP = "The federator's public key: base64 text, a file with that, or a credentials file, which names it"
# By a receipt's version, what its digest is.
_DIGESTS = {1: "SHA-256", 2: "Chain of SHA-256"}


def verify(
    file: Annotated[str, argument("The file with the receipt; - reads standard input")],
    key: Annotated[str, option(KEY_HELP, metavar="TEXT|FILE")],
    json: options.Json = False,
) -> None:
    """Check offline that the federator signed this receipt, and print what it says.

    If the federator's key was rotated, --key takes the text of the key that it had; the operator knows all of them.
    """
    asked: dict[str, Any] = {"verified": False, "federator_key": None, "key_fingerprint": None}
    with reason_as_json(json, asked):
        public_key = public_key_of(key)
        asked |= key_identity(public_key)
        receipt = _verify(file, public_key)
    report(
        json,
        {**asked, "verified": True, "receipt": receipt.model_dump()},
        *_in_words(receipt),
        f"The signature is right: the holder of the key {key_to_text(public_key)} signed this very text.",
        "What a receipt proves and what it does not: docs/erasure.md",
    )


def verify_receipt_file(file: str, key: str) -> "ErasureReceipt":
    """The receipt in a file, if it is signed by the key that ``key`` is, or names."""
    return _verify(file, public_key_of(key))


def key_identity(public_key: bytes) -> dict[str, str]:
    """A key as programs are told of it: base64, and SHA-256 of its 32 bytes in hex."""
    return {"federator_key": key_to_text(public_key), "key_fingerprint": hashlib.sha256(public_key).hexdigest()}


def _verify(file: str, public_key: bytes) -> "ErasureReceipt":
    return verify_receipt(read_receipt(file), public_key)


def _in_words(receipt: "ErasureReceipt") -> list[str]:
    """What a receipt says, for people: all of it."""
    who = f"in the federation {receipt.federation}, for the client with the pseudonym {receipt.pseudonym}"
    when = f"erased {receipt.erased_at}, completed {receipt.completed_at}"
    key = "the key they were encrypted with exists no more" if receipt.key_destroyed else "no key was destroyed"
    lines = [
        f"Receipt of an erasure {who}.",
        f"Requested by the {receipt.requested_by} {receipt.requested_at}, {when}.",
        f"Erased: {receipt.n_updates} updates of {receipt.n_rounds} rounds, {receipt.n_events} events; {key}.",
        f"{_DIGESTS[receipt.version]} of the updates: {receipt.erased_digest}",
    ]
    if receipt.strategy == NOTHING_UNLEARNED:
        lines.append("It had taught no model, so there was none to unlearn.")
    else:
        coverage = "" if receipt.coverage is None else f", coverage {receipt.coverage:.0%}"
        how = f"{receipt.strategy}, {receipt.rounds_replayed} rounds replayed{coverage}"
        if not receipt.rounds_replayed:
            how = f"{receipt.strategy}: the model from before it, with nothing learned anew"
        lines.append(
            f"Model {receipt.model_after}, made without the client ({how}), replaced model {receipt.model_before}."
        )
        lines.append(f"Models whose weights are deleted: {receipt.models_withdrawn}.")
    if receipt.figures:
        lines.append("Figures: " + ", ".join(f"{name} {value:g}" for name, value in sorted(receipt.figures.items())))
    return [*lines, f"Audit log: entry {receipt.audit_seq}, hash {receipt.audit_hash}"]
