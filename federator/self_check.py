"""What a federator finds wrong with itself and its machine: broker, clock, disk, certificates, helpers.

Nobody else sees these. They are stored beside its lease, also while it waits for its broker to lead, and the verdict on
the federation has them (`foltr.operations.verdict`).
"""

import asyncio
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography.x509 import load_pem_x509_certificates

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.broker.probe import PresentedCertificate, look_at_certificate
from foltr.core.protocol.verdicts import Finding, Reason

MOST_AHEAD_S: Final = 5.0
_EXPIRES_SOON: Final = timedelta(days=30)
_FULL_BYTES: Final = 16 * 2**20
LOW_BYTES: Final = 2**30
LOW_SHARE: Final = 0.05
_SHOWN_CLIENTS: Final = 20
# A connection that is renewed at once is not worth an alarm.
_OUTAGE_S: Final = 3.0
_HANDSHAKE_EVERY_S: Final = 3.0


class SelfCheck:
    """The checks of one process that leads, or waits for its broker to lead.

    Args:
        holder: the process, as its lease names it.
        link: its present connection.
        folders: those it writes to.
        ahead_s: how far its clock is ahead of the database's.
        undelivered: the share of probes to the ingest workers without an answer; None without workers.
        helpers: what is wrong with the helpers that a round waits for or will need.

    Attributes:
        keyless: `foltr.storage.findings.clients_without_key`, as they were found last.
    """

    def __init__(
        self,
        holder: str,
        link: Callable[[], MqttLink],
        folders: Sequence[Path],
        ahead_s: Callable[[], float],
        undelivered: Callable[[], float | None],
        helpers: Callable[[], Iterable[Finding]],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._holder, self._link, self._folders = holder, link, folders
        self._now, self._monotonic = now, monotonic
        self._ahead_s, self._undelivered, self._helpers = ahead_s, undelivered, helpers
        self.keyless: Sequence[str] = ()
        self._since: dict[tuple[Reason, str], datetime] = {}
        self._down: tuple[datetime, float] | None = None  # since when, by both clocks
        self._expiries: tuple[BrokerAddress, list[tuple[str, datetime]]] | None = None
        self._of_broker: PresentedCertificate | Finding | None = None  # as a new connection sees it

    def __call__(self) -> list[Finding]:
        """Return what is wrong now, each with the moment at which this process found it first."""
        now = self._now()
        found = [*self._broker(now), *self._clock(), *self._disks(), *self._certificates(now), *self._rounds()]
        self._since = {(each.reason, each.culprit): self._since.get((each.reason, each.culprit), now) for each in found}
        return [replace(each, since=self._since[each.reason, each.culprit]) for each in found]

    async def watch_certificate(self) -> None:
        """Look for ever at the certificate that the broker shows to new connections: it may be replaced meanwhile."""
        while True:
            link = self._link()
            self._of_broker = await asyncio.to_thread(look_at_certificate, link.address, link.tls_context)
            await asyncio.sleep(_HANDSHAKE_EVERY_S)

    def _broker(self, now: datetime) -> Iterator[Finding]:
        link = self._link()
        if link.connected:
            self._down = None
            return
        if self._down is None:
            self._down = now, self._monotonic()
        since, down_at = self._down
        if self._monotonic() - down_at >= _OUTAGE_S:
            # Without the seconds that the outage has lasted, or each second would be another finding.
            cause = link.cause
            why = "no connection" if cause is None else f"{cause.failure_kind}: {cause.in_words.rstrip('.')}"
            yield Finding(Reason.BROKER_UNREACHABLE, f"Since {since:%H:%M:%S} UTC {why}.", str(link.address))

    def _clock(self) -> Iterator[Finding]:
        ahead_s = self._ahead_s()
        if abs(ahead_s) > MOST_AHEAD_S:
            how = "ahead of" if ahead_s > 0 else "behind"
            yield Finding(
                Reason.CLOCK_DIFFERS,
                f"The federator's clock is {_rounded(abs(ahead_s))} {how} the database's.",
                self._holder,
            )

    def _disks(self) -> Iterator[Finding]:
        for folder in self._folders:
            try:
                usage = shutil.disk_usage(folder)
            except OSError:
                continue  # a missing folder stops the federator with an error that names it
            if usage.free < _FULL_BYTES:
                least = _FULL_BYTES / 2**20
                yield Finding(Reason.DISK_FULL, f"{folder} has less than {least:.0f} MiB left.", str(folder))
            elif usage.free < min(LOW_BYTES, LOW_SHARE * usage.total):
                share = max(1, round(100 * usage.free / usage.total))
                yield Finding(Reason.DISK_LOW, f"{folder} has {share} % left.", str(folder))

    def _certificates(self, now: datetime) -> Iterator[Finding]:
        if isinstance(self._of_broker, Finding):
            yield self._of_broker
        for whose, expiry in self._ends():
            if expiry <= now:
                yield Finding(Reason.CERTIFICATE_EXPIRED, f"It expired at {expiry:%Y-%m-%d %H:%M} UTC.", whose)
            elif expiry - now < _EXPIRES_SOON:
                yield Finding(Reason.CERTIFICATE_EXPIRES, f"It expires at {expiry:%Y-%m-%d %H:%M} UTC.", whose)

    def _ends(self) -> list[tuple[str, datetime]]:
        """Return whose certificates end when; read again once the operator has replaced the authorities."""
        link = self._link()
        address = link.address
        if self._expiries is None or self._expiries[0] is not address:
            material = address.tls_material
            texts = () if material is None else (("authority", material.ca), ("federator", material.certificate))
            self._expiries = (
                address,
                [
                    (f"{whose} {certificate.subject.rfc4514_string()}", certificate.not_valid_after_utc)
                    for whose, pem in texts
                    if pem is not None
                    for certificate in load_pem_x509_certificates(pem.encode())
                ],
            )
        shown = self._of_broker
        if not isinstance(shown, PresentedCertificate):
            return self._expiries[1]
        return [*self._expiries[1], (f"broker {address}", datetime.fromtimestamp(shown.not_after, UTC))]

    def _rounds(self) -> Iterator[Finding]:
        if undelivered := self._undelivered():
            yield Finding(Reason.UPDATES_UNDELIVERED, f"{undelivered:.0%} of probes got no answer.")
        yield from self._helpers()
        for client in self.keyless[:_SHOWN_CLIENTS]:
            yield Finding(Reason.KEY_MISSING, "Was the database restored? Forget it again.", client)


def _rounded(seconds: float) -> str:
    """Round, so that the same difference is the same sentence."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"
