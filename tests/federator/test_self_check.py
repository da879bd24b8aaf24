"""A leader finds what is wrong with its broker, clock, disk and certificates, and since when."""

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from foltr.broker.address import BrokerAddress
from foltr.broker.certificates import create_authority, issue_client
from foltr.broker.failures import FailureCause, FailureKind
from foltr.broker.probe import PresentedCertificate
from foltr.broker.tls import TlsMaterial
from foltr.core.protocol.verdicts import Finding, Reason
from foltr.federator import self_check
from foltr.federator.self_check import SelfCheck


class Usage(NamedTuple):
    """What a disk has, in bytes."""

    total: int
    used: int
    free: int


PLENTY = Usage(100 * 2**30, 0, 50 * 2**30)


class Machine:
    """All that a check looks at, well unless a test changes it."""

    def __init__(self, monkeypatch, tmp_path) -> None:
        self.address = SimpleNamespace(tls_material=None)
        self.link = SimpleNamespace(connected=True, cause=None, address=self.address, tls_context=None)
        self.ahead_s, self.undelivered, self.helpers = 0.0, None, []
        self.usage, self.folder, self.at = PLENTY, tmp_path, datetime.now(UTC)
        self.seconds = 0.0
        monkeypatch.setattr(self_check.shutil, "disk_usage", lambda _: self.usage)
        self.check = SelfCheck(
            "north:1:a",
            lambda: self.link,
            [tmp_path],
            ahead_s=lambda: self.ahead_s,
            undelivered=lambda: self.undelivered,
            helpers=lambda: self.helpers,
            now=lambda: self.at,
            monotonic=lambda: self.seconds,
        )

    def found(self) -> list[tuple[Reason, str]]:
        return [(each.reason, each.culprit) for each in self.check()]

    async def shown(self, monkeypatch, what) -> None:
        """Let the broker show this to the next new connection, until the check has seen it."""
        looked = asyncio.Event()
        monkeypatch.setattr(self_check, "_HANDSHAKE_EVERY_S", 0.0)

        def look(_address, _context):
            loop.call_soon_threadsafe(looked.set)
            return what

        monkeypatch.setattr(self_check, "look_at_certificate", look)
        loop = asyncio.get_running_loop()
        watching = asyncio.create_task(self.check.watch_certificate())
        for _ in range(2):  # the second look begins once the first one's answer is taken
            looked.clear()
            await looked.wait()
        watching.cancel()


@pytest.fixture
def machine(monkeypatch, tmp_path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def test_a_machine_that_is_well_finds_nothing(machine):
    """Nor does one whose folder is not there yet."""
    assert machine.found() == []
    machine.ahead_s = -4.9
    assert machine.found() == []


def test_a_broker_that_is_away_counts_after_a_moment(machine):
    """A connection that is renewed at once is not worth an alarm, nor is a clock that was set ahead."""
    machine.link.connected = False
    machine.link.cause = FailureCause(FailureKind.LOGIN_REFUSED, "it refuses this user")
    assert machine.found() == []
    machine.at += timedelta(hours=1)
    assert machine.found() == []
    machine.at -= timedelta(hours=2)
    machine.seconds += 3
    (first,) = machine.check()
    machine.seconds += 3.3
    (again,) = machine.check()
    assert again == first
    assert first.reason is Reason.BROKER_UNREACHABLE
    assert first.detail.endswith("UTC login_refused: it refuses this user.")
    machine.link.connected = True
    assert machine.found() == []


@pytest.mark.parametrize(("ahead_s", "said"), [(3601.0, "60 min ahead of"), (-7.2, "7 s behind"), (9e4, "25 h ahead")])
def test_a_clock_that_differs(machine, ahead_s, said):
    """From the database's, which all processes share."""
    machine.ahead_s = ahead_s
    (finding,) = machine.check()
    assert (finding.reason, finding.culprit) == (Reason.CLOCK_DIFFERS, "north:1:a")
    assert said in finding.detail


@pytest.mark.parametrize(
    ("usage", "reason"),
    [
        (Usage(100 * 2**30, 0, 2**30 - 1), Reason.DISK_LOW),
        (Usage(10 * 2**20, 0, 2**19 + 1), Reason.DISK_FULL),
        (Usage(100 * 2**30, 0, 2**20), Reason.DISK_FULL),
        (Usage(2**31, 0, 2**29), None),
    ],
)
def test_a_disk_that_fills_up(machine, usage, reason):
    """By bytes and by share: a small disk that is half empty is none."""
    machine.usage = usage
    assert machine.found() == ([] if reason is None else [(reason, str(machine.folder))])


async def test_certificates_that_end(machine, monkeypatch):
    """The federator's, the authority's and the broker's; renewed ones are looked at as well."""
    authority = create_authority("foltr test")
    pair = issue_client(authority, "@federator", days=9)
    machine.address.tls_material = TlsMaterial(authority.certificate_pem, pair.certificate_pem, pair.key_pem)
    (finding,) = machine.check()
    assert finding.reason is Reason.CERTIFICATE_EXPIRES
    assert finding.culprit == "federator CN=@federator"
    machine.at += timedelta(days=10)
    assert machine.found() == [(Reason.CERTIFICATE_EXPIRED, "federator CN=@federator")]
    renewed = issue_client(authority, "@federator", days=90)
    machine.link.address = BrokerAddress(
        "north", 8883, tls=True, tls_material=TlsMaterial(None, renewed.certificate_pem)
    )
    assert machine.found() == []
    ends = (machine.at + timedelta(days=1)).timestamp()
    await machine.shown(monkeypatch, PresentedCertificate("TLSv1.3", "foltr broker", "foltr test", ends))
    assert machine.found() == [(Reason.CERTIFICATE_EXPIRES, "broker mqtts://north:8883")]


async def test_a_certificate_that_new_connections_refuse(machine, monkeypatch):
    """It was replaced beneath a connection that lives; once another one is shown nothing is wrong."""
    refused = Finding(Reason.CERTIFICATE_REFUSED, "It has expired.", "broker mqtts://north:8883")
    await machine.shown(monkeypatch, refused)
    assert machine.found() == [(Reason.CERTIFICATE_REFUSED, "broker mqtts://north:8883")]
    await machine.shown(monkeypatch, None)
    assert machine.found() == []


def test_what_rounds_wait_for(machine):
    """Helpers by name, workers by the share of probes without an answer, clients by key."""
    machine.helpers = [Finding(Reason.HELPER_AWAITED, "It has left the broker.", "south")]
    machine.undelivered, machine.check.keyless = 0.5, ["client 7"]
    assert machine.found() == [
        (Reason.UPDATES_UNDELIVERED, ""),
        (Reason.HELPER_AWAITED, "south"),
        (Reason.KEY_MISSING, "client 7"),
    ]
