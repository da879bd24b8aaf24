"""Revoked client certificates: the lists of them (CRLs) that authorities sign and the broker reads.

A list names certificates by serial number, so the operator's folder keeps the numbers, under a hash of each name. It
also has a list for each trusted authority; the broker's folder has all of them together. Mosquitto reads them at start
and on SIGHUP, and checks them at each handshake; it ends no open connection for them. An expired list would lock
everybody out, so each lives as long as its authority. Serial numbers are 160 random bits, so a list may hold those of
others.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from foltr.broker.authorities import trusted_ca_files
from foltr.broker.broker_records import REVOKED_NAME
from foltr.broker.certificates import KeyPair, issue_revocations, serial_of
from foltr.broker.files import locked, owner_of, replace_file
from foltr.core.user_files import FileKind, read_json_file, read_text_file

ISSUED_NAME = "certificates.json"


def write_revocations(operator_dir: Path, broker_dir: Path, numbers: Iterable[int] = ()) -> bool:
    """Sign the lists for the operator and the broker again, with these serial numbers added. Raises OSError.

    Returns:
        whether they were written where the broker reads them.
    """
    with locked(operator_dir):
        return _revoke(operator_dir, broker_dir, numbers)


def record_issued(operator_dir: Path, broker_dir: Path, pairs: Mapping[str, KeyPair]) -> None:
    """Store the serial numbers of new certificates, and revoke what these clients had before. Raises OSError."""
    with locked(operator_dir):
        issued = _issued(operator_dir)
        before = [number for name in pairs for number in issued.get(_key(name), ())]
        new = {_key(name): [serial_of(pair.certificate_pem)] for name, pair in pairs.items()}
        known = {key: [*issued.get(key, ()), *numbers] for key, numbers in new.items()}
        replace_file(operator_dir / ISSUED_NAME, json.dumps(issued | known) + "\n")
        if before:
            _revoke(operator_dir, broker_dir, before)


def revoke_all_of(operator_dir: Path, broker_dir: Path, name: str) -> bool:
    """Revoke every certificate of a client; False if the broker's folder is not here, or none is known.

    Raises:
        OSError: a list cannot be written.
    """
    with locked(operator_dir):
        numbers = _issued(operator_dir).get(_key(name), ())
        return _revoke(operator_dir, broker_dir, numbers) and bool(numbers)


def revoke_all_of_each(operator_dir: Path, broker_dir: Path, names: Iterable[str]) -> bool:
    """Revoke every certificate of several clients, signing once; return whether the broker has something to read.

    Raises:
        OSError: a list cannot be written.
    """
    with locked(operator_dir):
        issued, read = _issued(operator_dir), broker_dir / REVOKED_NAME
        numbers = [number for name in names for number in issued.get(_key(name), ())]
        before = read_text_file(read, FileKind.CERTIFICATES) if read.exists() else None
        if not numbers or not _revoke(operator_dir, broker_dir, numbers):
            return False
        return read_text_file(read, FileKind.CERTIFICATES) != before


def _revoke(operator_dir: Path, broker_dir: Path, numbers: Iterable[int]) -> bool:
    """Sign the lists with these serial numbers added; return whether they were written where the broker reads them."""
    added, lists = list(numbers), []
    for files in trusted_ca_files(operator_dir):
        before = read_text_file(files.revoked, FileKind.CERTIFICATES) if files.revoked.exists() else None
        lists.append(issue_revocations(files.load(), added, before))
        replace_file(files.revoked, lists[-1], mode=0o644)
    if not broker_dir.is_dir():
        return False
    read = broker_dir / REVOKED_NAME
    replace_file(read, "".join(lists), mode=0o644, owner=owner_of(read))
    return True


def _issued(operator_dir: Path) -> dict[str, list[int]]:
    path = operator_dir / ISSUED_NAME
    return read_json_file(path, FileKind.REGISTER) if path.exists() else {}


def _key(name: str) -> str:
    # Not the name itself: forgetting a client does not search this file.
    return hashlib.sha256(f"foltr certificate\n{name}".encode()).hexdigest()
