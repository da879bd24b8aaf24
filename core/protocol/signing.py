"""Ed25519 keys prove who is who, and let an operator vouch for a device.

Three kinds of key. A *device's* key signs everything the device sends. The *federator's* signs everything the federator
sends. The *enrolment* key signs who is a device and who no longer is; the federator process does not hold it, so it
cannot invent clients.

A signature covers the topic (federation, client and purpose), the kind of message, its place in the sender's sequence
and the body, so a message moved to another topic, or another client, has no valid signature.
"""

import base64
import binascii
import hashlib
import secrets
import time
from typing import Protocol

from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from foltr.core.errors import SettingsError

KEY_BYTES = 32
SIGNATURE_BYTES = 64
_DOMAIN = b"foltr message 1\n"
# Steps within one session, or one connection of a federator; the last one belongs to the last will, which is signed
# when it begins.
SESSION_STEPS = 1 << 16
# Sessions are milliseconds: up to the year 2248.
_LATEST_SESSION = 1 << 43
# Room for epochs of unix seconds until the year 2242, and for a billion messages a second.
_EPOCH_BITS = 30
_N_REMEMBERED = 16
_remembered: dict[tuple[bytes, bytes, bytes], bool] = {}


class SigningKey:
    """An Ed25519 private key. Its text form never shows it."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != KEY_BYTES:
            raise SettingsError(f"signing key: {len(seed)} bytes; an Ed25519 key has {KEY_BYTES}")
        self._seed = seed
        self.public, self._pair = sodium.crypto_sign_seed_keypair(seed)

    @classmethod
    def generate(cls) -> "SigningKey":
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_text(cls, text: str) -> "SigningKey":
        return cls(key_from_text("signing_key", text))

    def to_text(self) -> str:
        """Return the private key as text. A file with it should be readable only by its owner."""
        return key_to_text(self._seed)

    def sign(self, data: bytes) -> bytes:
        return sodium.crypto_sign(data, self._pair)[:SIGNATURE_BYTES]

    def derive(self, purpose: str) -> bytes:
        """Return a secret of this key for one purpose, 16 bytes, which reveals nothing of the key."""
        return hashlib.blake2b(purpose.encode(), key=self._seed, digest_size=16).digest()

    def __repr__(self) -> str:
        return f"SigningKey(public={key_to_text(self.public)})"


def verify(public_key: bytes, data: bytes, signature: bytes) -> bool:
    """Whether ``signature`` is this key's for ``data``; False for anything else, of any length.

    libsodium needs half of OpenSSL's time to say yes. It also refuses keys and points of small order, which no honest
    signer has; so OpenSSL decides in the end, and other programs that check with it agree. Only a device may lack
    OpenSSL (the extra ``secure``); libsodium then decides alone.
    """
    if len(signature) != SIGNATURE_BYTES or len(public_key) != KEY_BYTES:
        return False
    try:
        sodium.crypto_sign_open(signature + data, public_key)
    except CryptoError:
        return _is_signature_by_openssl(public_key, data, signature)
    return True


def _is_signature_by_openssl(public_key: bytes, data: bytes, signature: bytes) -> bool:
    try:
        from foltr.core.protocol.openssl_signatures import is_signature
    except ModuleNotFoundError:
        return False
    return is_signature(public_key, data, signature)


def verify_repeated(public_key: bytes, data: bytes, signature: bytes) -> bool:
    """`verify`, cached, for messages that many clients of one process receive."""
    # By digest: a model may be large, and the cache should not hold the last few.
    question = (public_key, hashlib.sha256(data).digest(), signature)
    if question not in _remembered:
        if len(_remembered) >= _N_REMEMBERED:
            _remembered.pop(next(iter(_remembered)))
        _remembered[question] = verify(public_key, data, signature)
    return _remembered[question]


def signed_bytes(topic: str, kind: str, sequence: int, body: bytes) -> bytes:
    """Return the bytes that are signed. No topic or kind holds a line break, so no two messages share these bytes."""
    return b"".join((_DOMAIN, topic.encode(), b"\n", kind.encode(), b"\n", sequence.to_bytes(8, "big"), body))


def key_to_text(key: bytes) -> str:
    return base64.b64encode(key).decode()


def key_from_text(name: str, text: str) -> bytes:
    """Return 32 bytes from base64; SettingsError naming the setting ``name`` (not the text, which may be secret)."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise SettingsError(f"{name}: it is not the base64 text of {KEY_BYTES} bytes")
    return key


class SequenceSource(Protocol):
    """Numbers a sender's messages, each higher than the one before."""

    def next(self) -> int: ...


class EpochSequence:
    """A federator's sequence, which rises within one claim of the federation, and with every claim.

    A claim's epoch is at least its unix seconds (`foltr.storage.federations.claim_federation`). So even a sequence
    beyond 2^30 messages in one claim stays below that of the next.
    """

    def __init__(self) -> None:
        self._last = 0

    def begin(self, epoch: int) -> None:
        """Number messages under the claim ``epoch`` from now on."""
        self._last = epoch << _EPOCH_BITS

    def next(self) -> int:
        self._last += 1
        return self._last


def epoch_and_number(sequence: int) -> tuple[int, int]:
    """Split a number of an `EpochSequence` into the claim and the number of the message within it."""
    return sequence >> _EPOCH_BITS, sequence & ((1 << _EPOCH_BITS) - 1)


def sequence_of(epoch: int, number: int) -> int:
    """Reverse `epoch_and_number`."""
    return (epoch << _EPOCH_BITS) + number


class _SteppedSequence:
    """A sequence that rises within a session, whose last number belongs to its last will."""

    def __init__(self, newest: int) -> None:
        self.session = newest
        self._step = 0

    def _begin(self, session: int) -> None:
        self.session, self._step = session, 0

    def next(self) -> int:
        # Even a session of years stays below its own last will.
        self._step = min(self._step + 1, SESSION_STEPS - 2)
        return self.session * SESSION_STEPS + self._step

    def last_will(self) -> int:
        """The number above everything else this session sends, and below the next session."""
        return self.session * SESSION_STEPS + SESSION_STEPS - 1


class BeatSequence(_SteppedSequence):
    """The sequence of a federator's heartbeat: it rises within a connection, and with each connection and claim.

    It has the form of an `EpochSequence`. 2^14 connections fit into a claim; more of them take longer than the second
    by which the next claim is later.
    """

    def __init__(self) -> None:
        super().__init__(0)

    def begin(self, epoch: int) -> None:
        """Number connections under the claim ``epoch`` from now on."""
        self._begin(epoch * (1 << _EPOCH_BITS) // SESSION_STEPS)

    def begin_connection(self) -> None:
        """Begin a connection."""
        self._begin(self.session + 1)


class SessionSequence(_SteppedSequence):
    """A device's sequence: it rises within a session, and every session begins above the one before.

    Args:
        newest: the session to begin above, from the device's store; if the store was lost, the clock is high enough.
    """

    def __init__(self, newest: int = 0) -> None:
        super().__init__(newest)

    def begin_session(self) -> int:
        """Begin a session; return it, to be stored before anything is sent."""
        self._begin(max(self.session + 1, time.time_ns() // 1_000_000))
        return self.session

    def begin_above(self, seen: int) -> None:
        """Begin the next session above ``seen``, which the federator has seen from this client.

        A value that no session of ours can have is ignored: above it there might never be room.
        """
        if seen // SESSION_STEPS < _LATEST_SESSION:
            self.session = max(self.session, seen // SESSION_STEPS)
