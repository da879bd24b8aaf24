"""``foltr doctor`` tells a device that the roster revokes it, where the broker lets it in all the same."""

import json
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from answering import answering
from cli.commands import foltr
from cli.doctor.test_doctor import announcement
from publishing import publish_once

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage
from foltr.cli.doctor.checks import Finding, State, run
from foltr.cli.doctor.checks_announced import ANNOUNCED
from foltr.cli.doctor.checks_broker import Visit
from foltr.core.operator.credentials import Credentials, read_credentials
from foltr.core.operator.register import read_enrolment_key
from foltr.core.protocol.chunks import chunk_of, manifest_of
from foltr.core.protocol.codec import encode
from foltr.core.protocol.enrolment import issue_roster
from foltr.core.protocol.fields import CHUNK_BYTES
from foltr.core.protocol.roster import Revocation, Roster
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics

DEVICE = "device-7"
RENEW = "Ask the operator for: foltr device enrol --replace"


@dataclass
class Enrolled:
    """A device that an operator has enrolled, with serial 1, and what both of them can sign."""

    device: Credentials
    federator: SigningKey
    enrolment: SigningKey

    @property
    def topics(self) -> Topics:
        return Topics(self.device.federation)

    def round(self) -> bytes:
        announced = announcement(3, time.time(), federation=self.device.federation)
        return encode(announced, self.topics.round, 1, self.federator)

    def roster(self, *revoked: Revocation, key: SigningKey | None = None) -> bytes:
        roster = Roster(
            federation=self.device.federation, version=4, through=9, revoked=list(revoked), salt=bytes(32), forgotten=[]
        )
        return issue_roster(key or self.enrolment, roster)

    async def looks_at(self, payload: bytes, chunks: dict[int, bytes] | None = None) -> Finding:
        """What the device's doctor says of this roster."""
        visit = Visit(BrokerAddress.parse("mqtt://127.0.0.1"), self.device.federation, self.device)
        heard = {self.topics.round: self.round(), self.topics.roster: payload}
        heard |= {self.topics.roster_chunk(index): chunk for index, chunk in (chunks or {}).items()}
        visit.heard.update((topic, InboundMessage(topic, said, retained=True)) for topic, said in heard.items())
        (found,) = [finding for finding in await run(ANNOUNCED, visit) if finding.what == "roster"]
        return found


@pytest.fixture
def enrolled(tmp_path: Path) -> Enrolled:
    assert foltr("device", "enrol", DEVICE, "--federation", "mail", "--operator", "op", cwd=tmp_path).returncode == 0
    federator = read_credentials(tmp_path / "op" / "federator.json", "federator")
    return Enrolled(
        read_credentials(tmp_path / f"{DEVICE}.json", "device"), federator.key, read_enrolment_key(tmp_path / "op")
    )


@pytest.mark.parametrize(
    ("revoked", "state", "said"),
    [
        ([], State.OK, "roster 4 does not revoke device-7"),
        ([("device-8", 9)], State.OK, "roster 4 does not revoke device-7"),
        (
            [("device-7", 2)],
            State.PROBLEM,
            f"device-7 is revoked (roster 4). {RENEW}",
        ),
    ],
    ids=["nobody", "another", "this one"],
)
async def test_what_a_roster_says_of_the_device(enrolled, revoked, state, said):
    """Whether it revokes this one, and what to do then."""
    entries = [Revocation(client_id=name, void_below=void_below) for name, void_below in revoked]
    assert await enrolled.looks_at(enrolled.roster(*entries)) == Finding("roster", state, said)


async def test_a_roster_in_chunks_is_read_whole(enrolled):
    """And where one is missing nothing is claimed of the device."""
    entries = [Revocation(client_id=f"revoked-with-a-long-name-{i:08d}", void_below=9) for i in range(6_000)]
    payload = enrolled.roster(*entries, Revocation(client_id=DEVICE, void_below=2))
    manifest = manifest_of(payload, "mail")
    assert manifest.n_chunks == -(-len(payload) // CHUNK_BYTES) > 1
    chunks = {index: encode(chunk_of(manifest, payload, index)) for index in range(manifest.n_chunks)}
    assert "device-7 is revoked" in (await enrolled.looks_at(encode(manifest), chunks)).detail
    del chunks[1]
    found = await enrolled.looks_at(encode(manifest), chunks)
    assert (found.state, "1 chunks are missing" in found.detail) == (State.WARNING, True)


async def test_a_roster_of_somebody_else_revokes_nobody(enrolled):
    """Without access control anybody can write one: it is a warning, and no reason to be enrolled anew."""
    forged = enrolled.roster(Revocation(client_id=DEVICE, void_below=2), key=SigningKey.generate())
    found = await enrolled.looks_at(forged)
    assert found.state is State.WARNING
    assert "somebody else wrote it; it counts for nothing" in found.detail
    # Or the enrolment key was rotated, and an older access list keeps that from devices.
    assert "foltr broker config --force, then: foltr operator publish" in found.detail


def test_a_revoked_device_is_told_by_a_broker_that_lets_everybody_in(mqtt_broker, tmp_path):
    """From `foltr device revoke` to the words, and until it has been enrolled anew."""
    federation = f"mail-{uuid.uuid4().hex[:8]}"
    path, operator = tmp_path / f"{DEVICE}.json", tmp_path / "op"
    enrol = ("device", "enrol", DEVICE, "--operator", str(operator))
    assert foltr(*enrol, "--federation", federation, "--broker", mqtt_broker, cwd=tmp_path).returncode == 0
    device = read_credentials(path, "device")
    federator = read_credentials(operator / "federator.json", "federator")
    round_ = Enrolled(device, federator.key, SigningKey.generate()).round()
    assert publish_once(device.broker, "@federator", Topics(federation).round, round_, retain=True)
    with answering(operator, path).serve():
        done = foltr("device", "revoke", DEVICE, "--operator", str(operator))
    assert done.returncode == 0, done.stderr
    assert _roster_in(path, expected=1) == [
        "problem",
        f"{DEVICE} is revoked (roster 2). {RENEW}",
    ]
    assert foltr(*enrol, "--replace", cwd=tmp_path).returncode == 0
    assert _roster_in(path, expected=0) == ["ok", f"roster 2 does not revoke {DEVICE}"]


def _roster_in(credentials: Path, *, expected: int) -> list[str]:
    done = foltr("doctor", "--credentials", str(credentials), "--json", cwd=credentials.parent)
    assert done.returncode == expected, done.stdout + done.stderr
    (found,) = (finding for finding in json.loads(done.stdout) if finding["what"] == "roster")
    return [found["state"], found["detail"]]
