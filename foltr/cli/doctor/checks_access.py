"""What ``foltr doctor`` finds in the access list of a broker: whether it has the topics of this foltr.

A list that an older foltr wrote has no lines for the newer ones: the broker then drops what is said there without a
word. Of an anchor, say, no device compares the newest model with it, and nobody votes.
"""

from pathlib import Path

from foltr.cli.doctor.checks import Finding, State
from foltr.errors import SettingsError
from foltr.protocol.topics import ClientTopic, Topics
from foltr.user_files import FileKind, read_text_file

_NO_ANCHOR = "devices get no anchor to compare models with, and none votes on a model that does harm"
_NO_SUCCESSION = "nobody hears that the enrolment key was rotated: after `foltr operator rotate-key` all wait in vain"
_REMEDY = "Write the list anew where the broker is, `foltr broker config --force`, and restart the broker"
# No anchor has so many parts: devices pass over what is said there.
_NO_PART = 1_000_000
NOBODYS_FILTER = "foltr/doctor/nobody"
"""What no user of a federation needs to subscribe to."""


def anchor_topic(federation: str) -> str:
    """Name a topic that a federator may write if it may announce an anchor; an empty message means nothing there."""
    return Topics(federation).anchor_chunk(_NO_PART)


def _costs(topics: Topics) -> dict[str, str]:
    """What it costs where a list does not have a topic, by what its lines hold."""
    return {
        topics.anchor: _NO_ANCHOR,
        topics.evaluation: "devices are not asked how well models do by their users' clicks",
        topics.pace: "devices are not told to come by in turns, and stay connected",
        topics.authorities: "devices do not hear of another certificate authority (`foltr broker authority`)",
        topics.operator_key: _NO_SUCCESSION,
        topics.kept_enrolments: "helpers refuse all devices once the enrolment key was rotated",
        f"{topics.root}/tokens/": "no device can enrol itself with a one-time token",
        topics.client("+", ClientTopic.FORGET): "the HTTP API cannot hand on a device's wish to be forgotten",
    }


def operator_key_finding(federation: str, *, may_write: bool) -> Finding:
    """Say whether the broker lets the operator tell of another enrolment key, as it has answered."""
    topic = Topics(federation).operator_key
    if may_write:
        return Finding("operator-key", State.OK, f"the operator can write {topic}")
    detail = f"the operator may not write {topic}: the access list is of an older foltr, and so {_NO_SUCCESSION}"
    return Finding("operator-key", State.WARNING, f"{detail}. {_REMEDY}")


def anchor_finding(federation: str, *, may_write: bool) -> Finding:
    """Say whether the broker lets the federator announce an anchor, as it has answered."""
    topic = Topics(federation).anchor
    if may_write:
        return Finding("anchor", State.OK, f"the federator can write {topic}")
    detail = (
        f"the federator may not write {topic}: the access list is of an older foltr, and so {_NO_ANCHOR}. {_REMEDY}"
    )
    return Finding("anchor", State.WARNING, detail)


def subscription_finding(user: str, *, is_granted: bool) -> Finding:
    """Say whether the broker refuses a subscription that nobody needs, as it has answered."""
    what = "subscriptions"
    if not is_granted:
        return Finding(what, State.OK, f"{user} is refused what its part does not need")
    detail = (
        f"the broker grants {user} {NOBODYS_FILTER}, which nobody needs, and so any number of others: one device, or "
        "one that has a one-time token, can take all of its memory and end it. With Mosquitto write its configuration "
        "anew where it is, `foltr broker config --force`, and restart it; with another broker allow only what "
        "docs/brokers.md lists"
    )
    return Finding(what, State.PROBLEM, detail)


def list_findings(operator_dir: Path) -> list[Finding]:
    """Compare the access list with the one that this foltr writes; nothing where the list is on another machine.

    Lines that somebody has added are theirs to add.
    """
    from broker.access import ACL_NAME, access_list
    from broker.broker_records import Mode, read_record

    try:
        record = read_record(operator_dir)
        path = Path(record.broker_dir) / ACL_NAME
        present = set(_rules(read_text_file(path, FileKind.REGISTER)))
    except (SettingsError, OSError, UnicodeDecodeError):
        return []
    if record.mode is Mode.ANONYMOUS:
        return []
    whole = access_list(record.federation, record.helpers, record.workers)
    missing = [rule for rule in _rules(whole) if rule not in present]
    if not missing:
        return [Finding("access list file", State.OK, f"{path} has all that this foltr writes")]
    costs = _costs(Topics(record.federation))
    found = [cost for topic, cost in costs.items() if any(topic in line for _, line in missing)]
    lines = ", ".join(f"`{line}`" for line in dict.fromkeys(line for _, line in missing))
    so = f", and so {'; '.join(found)}" if found else ""
    detail = f"{path} lacks {lines}, as one of an older foltr does{so}. {_REMEDY}"
    return [Finding("access list file", State.WARNING, detail)]


def _rules(text: str) -> list[tuple[str, str]]:
    """The lines of an access list, each behind the one that says whose it is; a pattern is everybody's."""
    rules, user = [], ""
    for line in text.splitlines():
        if line.startswith("user "):
            user = line
        elif line and not line.startswith("#"):
            rules.append(("" if line.startswith("pattern ") else user, line))
    return rules
