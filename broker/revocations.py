"""Client certificates that count no more: the list of them (a CRL) that the authority signs and the broker reads.

A certificate is on the list by its serial number, so the numbers are kept in the operator's folder when certificates
are made, under a hash of the name. The list is in that folder and in the broker's; Mosquitto reads it when it starts
and on SIGHUP, and asks it at each handshake: a connection that stands is not ended by it. A list that is out of date
would keep everybody out, so it lives as long as its authority.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from broker.access import REVOKED_NAME
from broker.certificates import KeyPair, issue_revocations, serial_of
from broker.files import locked, owner_of, replace_file

ISSUED_NAME = "certificates.json"


def write_revocations(operator_dir: Path, broker_dir: Path, authority: KeyPair) -> None:
    """Sign the list anew, empty where there was none, for the operator and for the broker. Raises OSError."""
    with locked(operator_dir):
        _revoke(operator_dir, broker_dir, authority, ())


def note_issued(operator_dir: Path, broker_dir: Path, authority: KeyPair, pairs: Mapping[str, KeyPair]) -> None:
    """Keep the numbers of new certificates; what these clients had before counts no more. Raises OSError."""
    with locked(operator_dir):
        issued = _issued(operator_dir)
        before = [number for name in pairs for number in issued.get(_key(name), ())]
        new = {_key(name): [serial_of(pair.certificate_pem)] for name, pair in pairs.items()}
        known = {key: [*issued.get(key, ()), *numbers] for key, numbers in new.items()}
        replace_file(operator_dir / ISSUED_NAME, json.dumps(issued | known) + "\n")
        if before:
            _revoke(operator_dir, broker_dir, authority, before)


def revoke_all_of(operator_dir: Path, broker_dir: Path, authority: KeyPair, name: str) -> bool:
    """Put every certificate of a client on the list; False where the broker's folder is not here, or none is known.

    Raises:
        OSError: a list cannot be written.
    """
    with locked(operator_dir):
        numbers = _issued(operator_dir).get(_key(name), ())
        return _revoke(operator_dir, broker_dir, authority, numbers) and bool(numbers)


def _revoke(operator_dir: Path, broker_dir: Path, authority: KeyPair, numbers: Iterable[int]) -> bool:
    """Sign the list with these numbers on it, too; returns whether it was written where the broker reads it."""
    kept = operator_dir / REVOKED_NAME
    before = kept.read_text(encoding="utf-8") if kept.exists() else None
    signed = issue_revocations(authority, numbers, before)
    replace_file(kept, signed, mode=0o644)
    if not broker_dir.is_dir():
        return False
    read = broker_dir / REVOKED_NAME
    replace_file(read, signed, mode=0o644, owner=owner_of(read))
    return True


def _issued(operator_dir: Path) -> dict[str, list[int]]:
    path = operator_dir / ISSUED_NAME
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _key(name: str) -> str:
    # Not the name: this file is not gone through when a client is forgotten.
    return hashlib.sha256(f"foltr certificate\n{name}".encode()).hexdigest()
