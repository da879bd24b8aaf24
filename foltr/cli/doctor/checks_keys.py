"""What ``foltr doctor`` says of the enrolment key: whether another one followed from that of the credentials."""

from foltr.cli.doctor.checks import Finding, State
from foltr.operator.credentials import Credentials
from foltr.operator.heard_keys import HeardKeys

WHAT = "enrolment key"
_MEND = "the broker's access list may keep that back: foltr broker config --force, and then foltr operator publish"


def key_findings(credentials: Credentials | None, keys: HeardKeys | None) -> list[Finding]:
    """Compare the keys of the credentials with those that the broker tells of; nothing where they are the same."""
    if credentials is None or keys is None:
        return []
    if keys.hindrance is not None:
        return [Finding(WHAT, State.WARNING, keys.hindrance)]
    if keys.credentials.enrolment_key == credentials.enrolment_key:
        return []
    detail = "it was rotated since these credentials were written, as the broker says; they need not be replaced"
    return [Finding(WHAT, State.OK, detail)]


def or_rotated(succession: bytes | None) -> str:
    """Say what else may be the matter where something is not signed by the operator; empty where that is known."""
    return "" if succession else f". Or the enrolment key was rotated: {_MEND}"
