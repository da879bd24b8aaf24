"""The results for the leaving device of the demonstration: its receipt, rankings, and remains of its data."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from foltr.cli.demo import command_name
from foltr.core.erasure.receipt import ErasureReceipt, verify_receipt
from foltr.core.errors import DataError, FoltrError
from foltr.core.protocol.signing import key_to_text
from foltr.edge_client.client import ForgetResult
from foltr_research.cli.demos.progress import say

# How long to wait for the erasure.
FORGET_S: Final = 600.0


@dataclass(frozen=True)
class Place:
    """A searched place, and the number of bytes of the leaver found there."""

    place: str
    before: int
    after: int


@dataclass
class Departure:
    """The leaving device and the outcome of its erasure.

    Attributes:
        federator_key: public.
        before, after: bytes found, by place.
        ndcg: on held-out queries, by model.
    """

    name: str
    federator_key: bytes
    result: ForgetResult
    receipt: ErasureReceipt | None
    before: dict[str, int]
    after: dict[str, int]
    ndcg: dict[str, float | None]

    def plain(self) -> dict[str, Any]:
        """Return it for the JSON results."""
        receipt = self.receipt
        return {
            "client": self.name,
            "state": self.result.state,
            "receipt_verified": receipt is not None,
            "bytes_before": self.before,
            "bytes_left": sum(self.after.values()),
            "ndcg_at_10": self.ndcg,
            "strategy": None if receipt is None else receipt.strategy,
            "rounds_replayed": None if receipt is None else receipt.rounds_replayed,
            "coverage": None if receipt is None else receipt.coverage,
            "receipt": self.result.receipt,
            "federator_key": key_to_text(self.federator_key),
        }


def check_promise(forget: dict[str, Any]) -> None:
    """Raise FoltrError unless the client was forgotten, has a receipt, and no trace of it was found."""
    client, failures = forget["client"], []
    if forget["state"] != "forgotten":
        failures.append(f"after {FORGET_S:g} s its request is only {forget['state']}")
    elif not forget["receipt_verified"]:
        failures.append("its receipt is not valid")
    if unseen := [place for place, found in forget["bytes_before"].items() if not found]:
        failures.append(f"nothing of it was found in {', '.join(unseen)} even before, so a search there proves nothing")
    if forget["bytes_left"]:
        failures.append(f"{forget['bytes_left']} bytes of it are left")
    if failures:
        raise FoltrError(f"{client} asked to be forgotten, but {'; '.join(failures)}")


def check_receipt(result: ForgetResult, federator_key: bytes, federation: str) -> ErasureReceipt | None:
    """Return the receipt if it exists, is signed by the federator and belongs to this federation."""
    try:
        receipt = None if result.receipt is None else verify_receipt(result.receipt, federator_key)
    except DataError as error:
        say(str(error))
        return None
    return receipt if receipt is not None and receipt.federation == federation else None


def hand_over(departure: Departure, db_url: str) -> None:
    """Write the receipt and the federator's key beside the database, or with a server into the working directory."""
    if departure.result.receipt is None:
        return
    beside = Path(db_url.removeprefix("sqlite:///") if db_url.startswith("sqlite:///") else "foltr-demo-forget")
    receipt, key = (beside.with_name(f"{beside.name}.{ending}") for ending in ("receipt.jws", "federator.pub"))
    for file, text in ((receipt, departure.result.receipt), (key, key_to_text(departure.federator_key))):
        try:
            file.write_text(f"{text}\n", encoding="ascii")
        except OSError as error:
            say(f"The receipt was not saved: {file} cannot be written: {error.strerror or error}")
            return
    say("Check the receipt yourself; it needs no database and no network:")
    say(f"  {command_name()} erasure verify {shlex.quote(str(receipt))} --key {shlex.quote(str(key))}")
