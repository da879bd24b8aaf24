"""The verdict on a federation: whether it is well, and if not, every reason, what to type next, and where to read on.

One table of reasons serves the federator, which finds some of them itself, `foltr status`, the HTTP API and its page,
the metrics, and the runbook.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from foltr.core.protocol.policies import NEW_POLICY

_RUN_FEDERATOR: Final = "foltr federator run --db URL --credentials foltr-operator/federator.json"
_PLACEHOLDER: Final = re.compile(r"\b(?:CLIENT|URL|FILE)\b")


class Level(StrEnum):
    """How a federation is. Degraded: it works, and somebody has to act. Down: no round can make a model."""

    OK = "ok"
    DEGRADED = "degraded"
    DOWN = "down"


class Reason(StrEnum):
    """A member is written ``NAME = value, level, sentence, next command``; it equals its value."""

    level: Level
    sentence: str
    command: str

    # The defaults are for type checkers, as for `foltr.core.protocol.explained.Explained`.
    def __new__(cls, value: str, level: Level = Level.OK, sentence: str = "", command: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.level, member.sentence, member.command = level, sentence, command
        return member

    DATABASE_UNREACHABLE = (
        "database_unreachable",
        Level.DOWN,
        "The database does not answer.",
        "foltr doctor --db URL",
    )
    DATABASE_GONE = (
        "database_gone",
        Level.DOWN,
        "The file of the database is not there: it was moved or deleted, or never made.",
        "foltr doctor --db URL",
    )
    SCHEMA_OLDER = (
        "schema_older",
        Level.DOWN,
        "The tables are of an older version than this program.",
        "foltr db upgrade --db URL",
    )
    SCHEMA_NEWER = (
        "schema_newer",
        Level.DOWN,
        "The tables are of a newer version than this program: install that version.",
        "foltr doctor --db URL",
    )
    DISK_FULL = "disk_full", Level.DOWN, "The disk of the federator is full.", "df -h"
    CERTIFICATE_EXPIRED = (
        "certificate_expired",
        Level.DOWN,
        "A certificate has expired.",
        "foltr doctor --credentials FILE",
    )
    BROKER_UNREACHABLE = (
        "broker_unreachable",
        Level.DOWN,
        "The MQTT broker does not answer, or refuses the federator.",
        "foltr doctor --credentials FILE",
    )
    FEDERATOR_STOPPED = (
        "federator_stopped",
        Level.DOWN,
        "No federator leads the federation.",
        _RUN_FEDERATOR,
    )
    FEDERATOR_HANGS = "federator_hangs", Level.DOWN, "The federator hangs.", "foltr rounds why --db URL"
    POLICY_ENDED = "policy_ended", Level.DOWN, "The privacy policy has ended.", NEW_POLICY
    HELPER_AWAITED = (
        "helper_awaited",
        Level.DOWN,
        "A helper does not answer, or refuses, so rounds wait.",
        "foltr helper run --credentials CLIENT.json",
    )
    UPDATES_UNDELIVERED = (
        "updates_undelivered",
        Level.DOWN,
        "Updates do not reach the ingest workers.",
        "foltr rounds why --db URL",
    )
    CLOCK_DIFFERS = "clock_differs", Level.DEGRADED, "Clocks differ.", "timedatectl status"
    CERTIFICATE_REFUSED = (
        "certificate_refused",
        Level.DEGRADED,
        "New connections refuse the broker's certificate; those that live go on.",
        "foltr broker renew",
    )
    DISK_LOW = "disk_low", Level.DEGRADED, "The disk of the federator is almost full.", "df -h"
    MESSAGES_REFUSED = (
        "messages_refused",
        Level.DEGRADED,
        "Many messages are refused.",
        "foltr device show CLIENT --db URL",
    )
    DATABASE_OLDER = (
        "database_older",
        Level.DEGRADED,
        "The database is older than what was announced: it was restored or swapped.",
        "foltr rounds list --db URL",
    )
    KEY_MISSING = (
        "key_missing",
        Level.DEGRADED,
        "Clients have sealed updates and no data key: a restored database brought forgotten clients back.",
        "foltr erasure request CLIENT",
    )
    AUDIT_LOG_DIFFERS = (
        "audit_log_differs",
        Level.DEGRADED,
        "The log of erasures lacks published entries: the database is older than its audit log.",
        "foltr erasure request NAME",
    )
    TOO_FEW_DEVICES = (
        "too_few_devices",
        Level.DEGRADED,
        "Fewer devices are online than a round needs.",
        "foltr device list --db URL",
    )
    ROUNDS_FAIL = "rounds_fail", Level.DEGRADED, "Rounds end without a model.", "foltr rounds why --db URL"
    SELF_CHECK_FAILED = (
        "self_check_failed",
        Level.DEGRADED,
        "The federator cannot check itself, so other findings may be missing.",
        "journalctl -u foltr-federator",
    )
    ERASURE_OVERDUE = (
        "erasure_overdue",
        Level.DEGRADED,
        "An erasure is past its deadline.",
        "foltr erasure list --db URL",
    )
    ERASURE_NEEDS_ORDER = (
        "erasure_needs_order",
        Level.DEGRADED,
        "Unlearning waits for the operator's order.",
        "foltr erasure list --db URL",
    )
    UNLEARNING_UNANSWERED = (
        "unlearning_unanswered",
        Level.DEGRADED,
        "Steps of unlearning get too few answers.",
        "foltr erasure list --db URL",
    )
    UNLEARNING_PAUSED = (
        "unlearning_paused",
        Level.DEGRADED,
        "Unlearning waits for a device.",
        "foltr erasure list --db URL",
    )
    MODEL_HAS_ERASED = (
        "model_has_erased",
        Level.DEGRADED,
        "The model in service has learned from an erased client.",
        "foltr erasure list --db URL",
    )
    DEVICES_SUSPECT = (
        "devices_suspect",
        Level.DEGRADED,
        "Clients are proposed for quarantine.",
        "foltr device quarantine --db URL",
    )
    MODEL_ROLLED_BACK = (
        "model_rolled_back",
        Level.DEGRADED,
        "A model was replaced by an older one, since most devices found it worse.",
        "foltr rounds list --db URL",
    )
    # Not yet, or often no trouble: these must not hide one.
    CERTIFICATE_EXPIRES = (
        "certificate_expires",
        Level.DEGRADED,
        "A certificate expires soon.",
        "foltr doctor --credentials FILE",
    )
    POLICY_EXPIRES = "policy_expires", Level.DEGRADED, "The privacy policy ends soon.", NEW_POLICY
    DEVICE_REVOKED = (
        "device_revoked",
        Level.DEGRADED,
        "A device was revoked and its messages are refused; nothing is to do.",
        "foltr device list --db URL",
    )
    LEADER_CHANGED = (
        "leader_changed",
        Level.DEGRADED,
        "A federator started or took over.",
        "foltr status --db URL",
    )

    @property
    def is_of_client(self) -> bool:
        """Whether its culprit, if known, is a client."""
        return self in (Reason.KEY_MISSING, Reason.MESSAGES_REFUSED, Reason.DEVICE_REVOKED, Reason.DEVICES_SUSPECT)

    @property
    def runbook(self) -> str:
        """Where the runbook explains it."""
        return f"docs/runbook.md#{self}"


class Ending(StrEnum):
    """Why a federator ended by itself. A member is written ``NAME = value, sentence, next command``."""

    sentence: str
    command: str

    def __new__(cls, value: str, sentence: str = "", command: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence, member.command = sentence, command
        return member

    DATA_KEYS_MISSING = (
        "data_keys_missing",
        "Its folder of data keys lacks keys.",
        f"{_RUN_FEDERATOR} --keys FOLDER",
    )
    KEY_REPLACED = "key_replaced", "The operator has replaced its key.", _RUN_FEDERATOR
    LEASE_LOST = "lease_lost", "Another federator took over.", f"{_RUN_FEDERATOR} --standby"
    SCHEMA_OLDER = "schema_older", Reason.SCHEMA_OLDER.sentence, Reason.SCHEMA_OLDER.command
    SCHEMA_NEWER = "schema_newer", Reason.SCHEMA_NEWER.sentence, Reason.SCHEMA_NEWER.command
    SETTINGS_REFUSED = "settings_refused", "Its settings are refused.", "foltr config show"
    UNAVAILABLE = "unavailable", "Something it needs did not answer.", "foltr doctor --credentials FILE"
    FAILED = "failed", "It failed.", "journalctl -u foltr-federator"


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why a federation is not well.

    Attributes:
        culprit: what or who causes it: a device, a helper, a file, an address; empty if that is not known.
        detail: the measured fact, in one sentence.
        since: when it began, as far as is known.
        next_command: what to type next, if that depends on the detail.
    """

    reason: Reason
    detail: str
    culprit: str = ""
    since: datetime | None = None
    next_command: str = ""

    def command(self, values: Mapping[str, str] = MappingProxyType({})) -> str:
        """Return what to type next, with the client that it is about.

        Args:
            values: what stands for ``URL`` and ``FILE``, as far as the reader may know it; quoted for a shell.
        """
        values = {"CLIENT": self.culprit, **values}
        return _PLACEHOLDER.sub(
            lambda found: values.get(found[0]) or found[0], self.next_command or self.reason.command
        )


@dataclass(frozen=True)
class Verdict:
    """The verdict, with the gravest finding first.

    Attributes:
        values: for the commands of its findings (`Finding.command`).
    """

    findings: tuple[Finding, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, findings: Iterable[Finding], values: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Order findings as the table has its reasons, else as they come, and keep one of each reason and culprit."""
        order = {reason: place for place, reason in enumerate(Reason)}
        first: dict[tuple[Reason, str], Finding] = {}
        for each in findings:
            first.setdefault((each.reason, each.culprit), each)
        return cls(tuple(sorted(first.values(), key=lambda each: order[each.reason])), values)

    @property
    def level(self) -> Level:
        """That of the gravest finding."""
        levels = {each.reason.level for each in self.findings}
        return next((level for level in (Level.DOWN, Level.DEGRADED) if level in levels), Level.OK)

    @property
    def headline(self) -> str:
        """The verdict in a sentence."""
        if not self.findings:
            return "All is well."
        first, n_more = self.findings[0], len(self.findings) - 1
        more = "" if n_more == 0 else f" And {n_more} more."
        return f"{first.reason.sentence} {first.detail}{more}"


def as_rows(verdict: Verdict) -> list[dict[str, Any]]:
    """Return the findings with all that their reasons say, for JSON."""
    return [_as_row(each, verdict.values) for each in verdict.findings]


def _as_row(finding: Finding, values: Mapping[str, str]) -> dict[str, Any]:
    reason = finding.reason
    return {
        "reason": str(reason),
        "level": str(reason.level),
        "sentence": reason.sentence,
        "detail": finding.detail,
        "culprit": finding.culprit,
        "culprit_is_client": reason.is_of_client and bool(finding.culprit),
        "since": finding.since,
        "command": finding.command(values),
        "runbook": reason.runbook,
    }
