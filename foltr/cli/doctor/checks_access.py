"""What ``foltr doctor`` finds in the access list of a broker: whether it lets everybody have the anchor.

A list that an older foltr wrote has no lines for it: the broker then drops the anchor without a word, no device
compares the newest model with it, and nobody votes.
"""

from pathlib import Path

from foltr.cli.doctor.checks import Finding, State
from foltr.errors import SettingsError
from foltr.protocol.topics import Topics

_COST = "devices get no anchor to compare models with, and none votes on a model that does harm"
_COST_OF_NO_REQUEST = "devices are not asked how well models do by their users' clicks"
_REMEDY = "Write the list anew where the broker is, `foltr broker config --force`, and restart the broker"
# No anchor has so many parts: devices pass over what is said there.
_NO_PART = 1_000_000


def anchor_topic(federation: str) -> str:
    """Name a topic that a federator may write if it may announce an anchor; an empty message means nothing there."""
    return Topics(federation).anchor_chunk(_NO_PART)


def anchor_finding(federation: str, *, may_write: bool) -> Finding:
    """Say whether the broker lets the federator announce an anchor, as it has answered."""
    topic = Topics(federation).anchor
    if may_write:
        return Finding("anchor", State.OK, f"the federator can write {topic}")
    detail = f"the federator may not write {topic}: the access list is of an older foltr, and so {_COST}. {_REMEDY}"
    return Finding("anchor", State.WARNING, detail)


def list_findings(operator_dir: Path) -> list[Finding]:
    """Compare the access list with the one that this foltr writes; nothing where the list is on another machine.

    Lines that somebody has added are theirs to add.
    """
    from broker.access import ACL_NAME, access_list
    from broker.broker_records import Mode, read_record

    try:
        record = read_record(operator_dir)
        path = Path(record.broker_dir) / ACL_NAME
        present = set(path.read_text(encoding="utf-8").splitlines())
    except (SettingsError, OSError, UnicodeDecodeError):
        return []
    if record.mode is Mode.ANONYMOUS:
        return []
    written = access_list(record.federation, record.helpers).splitlines()
    missing = [line for line in written if line and not line.startswith("#") and line not in present]
    if not missing:
        return [Finding("access list file", State.OK, f"{path} has all that this foltr writes")]
    topics = Topics(record.federation)
    costs = [(topics.anchor, _COST), (topics.evaluation, _COST_OF_NO_REQUEST)]
    found = [cost for topic, cost in costs if any(topic in line for line in missing)]
    lines = ", ".join(f"`{line}`" for line in missing)
    so = f", and so {'; '.join(found)}" if found else ""
    detail = f"{path} lacks {lines}, as one of an older foltr does{so}. {_REMEDY}"
    return [Finding("access list file", State.WARNING, detail)]
