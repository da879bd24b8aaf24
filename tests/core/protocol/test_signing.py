"""Identity: what a signature covers, that keys stay secret, and that sequence numbers only rise."""

import base64
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.core.errors import SettingsError
from foltr.core.protocol import signing
from foltr.core.protocol.signing import (
    SESSION_STEPS,
    BeatSequence,
    EpochSequence,
    SessionSequence,
    SigningKey,
    epoch_and_number,
    key_from_text,
    key_to_text,
    signed_bytes,
    verify,
)

# RFC 8032, section 7.1, test 2: secret key, public key, message, signature.
RFC_SECRET = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
RFC_PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
RFC_MESSAGE = b"\x72"
RFC_SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_signatures_are_those_of_the_standard():
    """Ed25519 as RFC 8032 has it; OpenSSL gives the same verdict on crafted ones: helpers compare theirs."""
    key = SigningKey(RFC_SECRET)
    assert key.public == RFC_PUBLIC
    assert key.sign(RFC_MESSAGE) == RFC_SIGNATURE
    assert verify(RFC_PUBLIC, RFC_MESSAGE, RFC_SIGNATURE)
    for public_key, data, signature, is_valid in HOSTILE:
        assert verify(bytes.fromhex(public_key), data, bytes.fromhex(signature)) is is_valid


def test_a_device_without_openssl_takes_no_signature_that_others_refuse(monkeypatch):
    """And takes those of honest signers; of crafted ones it refuses more."""
    monkeypatch.setitem(sys.modules, "foltr.core.protocol.openssl_signatures", None)
    assert verify(RFC_PUBLIC, RFC_MESSAGE, RFC_SIGNATURE)
    verdicts = [(verify(bytes.fromhex(key), data, bytes.fromhex(said)), taken) for key, data, said, taken in HOSTILE]
    assert verdicts == [(True, True), (False, False), (False, True)]


# Public key, message, signature, and whether OpenSSL takes it: keys with a part of order 8, which their owners choose
# on purpose, and the neutral element, which is nobody's. The first two differ in whether 8 divides the challenge.
_TORSION_KEY = "caec89efaf70e8795f75c2a5ac72828420cdcbced22104d4d77ba8c16b2af124"
_TAKEN = "0cd3bd4f5521a5f99b464d959223b5a6846246a2ad970a9a534ead411adbc237"
_REFUSED = "3f2d5e0d8bd94622c2a99c82b6ac7ff3f99f128a314748908abb0f57688a683c"
HOSTILE = [
    (_TORSION_KEY, b"m163116", _TAKEN + "707a790aaac0d647d4c46dcf1e1fad56e5f2ea45c3e462d92a7a6b53a00e0606", True),
    (_TORSION_KEY, b"m496308", _REFUSED + "afc8dca3ea8b0718a619fe9f52679839fa5e5b221391ed916efe0c592888130f", False),
    ("01" + "00" * 31, b"any", "ef4f62f8479733ad879cfaced3c89a9c39dd4fc795ef2efa1c3eafe4d729a081393" + "0" * 61, True),
]


@settings(derandomize=True)
@given(st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=200))
def test_nothing_that_is_no_signature_passes_or_raises(public_key, data, signature):
    """Keys and signatures of any length are an answer, not an error: both come from peers."""
    assert not verify(public_key, data, signature)
    assert not verify(RFC_PUBLIC, data, signature)
    assert not verify(public_key, RFC_MESSAGE, RFC_SIGNATURE)


def test_keys_survive_their_text_and_show_the_public_half_alone():
    """No log line or traceback has a key; the error about a text names the setting: it may be a secret with a slip."""
    one, other = SigningKey.generate(), SigningKey.generate()
    assert one.public != other.public
    again = SigningKey.from_text(one.to_text() + "\n")
    assert again.public == one.public
    assert verify(one.public, b"data", again.sign(b"data"))
    key = SigningKey.generate()
    for text in (repr(key), str(key), f"{key}", repr([key])):
        assert key.to_text() not in text
        assert key_to_text(key.public) in text
    for text in ["", "secret", *(base64.b64encode(bytes(n)).decode() for n in (31, 33)), "ä" * 44]:
        for read in (SigningKey.from_text, lambda text: key_from_text("signing_key", text)):
            with pytest.raises(SettingsError, match=r"^signing_key: ") as caught:
                read(text)
            assert not text or text not in str(caught.value), text
    with pytest.raises(SettingsError, match="31 bytes"):
        SigningKey(bytes(31))


lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=30)
parts = st.tuples(lines, lines, st.integers(0, 2**63 - 1), st.binary(max_size=30))


@settings(derandomize=True)
@given(parts, parts)
def test_no_two_messages_share_their_signed_bytes(one, other):
    """Bytes cannot be moved from one part to the next: topics and kinds hold no line break, numbers have a width."""
    assert (signed_bytes(*one) == signed_bytes(*other)) == (one == other)


def test_what_is_signed_names_the_protocol():
    """A signature made for anything else, even with the same key, is none of a message."""
    assert signed_bytes("a/b", "join", 258, b"body") == (
        b"foltr message 1\na/b\njoin\n\x00\x00\x00\x00\x00\x00\x01\x02body"
    )


class Clock:
    def __init__(self, *times_ns):
        self._times = list(times_ns)

    def time_ns(self):
        return self._times.pop(0) if len(self._times) > 1 else self._times[0]


@pytest.fixture
def set_clock(monkeypatch):
    return lambda *times_ns: monkeypatch.setattr(signing, "time", Clock(*times_ns))


def test_a_federators_sequence_numbers_rise_with_every_message_and_every_claim():
    """Whatever the clock says; a beat's will is above its connection's beats, and below the next."""
    sequence = EpochSequence()
    sequence.begin(1)
    first = [sequence.next() for _ in range(3)]
    sequence.begin(2)
    second = [sequence.next() for _ in range(3)]
    assert sorted({*first, *second}) == first + second
    sequence.begin(2**23 - 1)
    assert sequence.next() < 2**63
    sequence = BeatSequence()
    numbers = []
    for epoch in (5, 6):
        sequence.begin(epoch)
        for _ in range(2):
            sequence.begin_connection()
            numbers += [sequence.next(), sequence.next(), sequence.last_will()]
    assert numbers == sorted(set(numbers))
    assert [epoch_and_number(number)[0] for number in numbers] == [5] * 6 + [6] * 6
    sequence.begin(2**33 - 1)  # unix seconds, until the year 2242
    sequence.begin_connection()
    assert sequence.last_will() < 2**63


def test_a_session_begins_above_the_one_before(set_clock):
    """By the clock, else the stored number, else the federator's; its will is above it and below the next session."""
    set_clock(7_000_000)
    assert SessionSequence().begin_session() == 7
    sequence = SessionSequence(newest=500)
    assert [sequence.begin_session(), sequence.begin_session()] == [501, 502]
    set_clock(7_000_000, 9_000_000)
    before = SessionSequence()
    before.begin_session()
    last = before.last_will()
    after = SessionSequence()
    after.begin_session()
    assert after.next() > last
    set_clock(7_000_000)
    ahead = SessionSequence(newest=9000)
    ahead.begin_session()
    seen = ahead.last_will()
    sequence = SessionSequence()
    sequence.begin_session()
    assert sequence.next() < seen
    sequence.begin_above(seen)
    sequence.begin_session()
    assert sequence.next() > seen
    set_clock(7_000_000)
    sequence = SessionSequence()
    sequence.begin_session()
    first, will = sequence.next(), sequence.last_will()
    many = [sequence.next() for _ in range(SESSION_STEPS + 10)]
    assert first < many[0] < many[SESSION_STEPS - 10] < will
    assert max(many) < will
    sequence.begin_session()
    assert sequence.next() > will
