"""What tells a helper that its store is an old copy: it has signed a commitment that the store does not have. No I/O.

A helper's own signature is the one witness against its restored self that nobody can make up, and that no store which
was copied before has. Each newest commitment is retained at the broker for it. A broker that keeps it back gains
nothing: the other helpers have committed themselves, too, and a sum takes the commitments of all.
"""

from foltr.core.protocol.helper_messages import SetCommitment
from foltr.helper.opening import CommittedSet


def find_missing(signed: SetCommitment, known: CommittedSet | None, newest: int | None) -> str | None:
    """Return what this helper has signed and its store lacks, or None.

    Args:
        signed: by this helper itself.
        known: what the store has of this round and cohort.
        newest: the newest round of which it has anything; of those before it keeps nothing.
    """
    if newest is not None and signed.round < newest:
        return None
    if known is not None and (known.policy_hash, known.digest) == (signed.policy_hash, signed.digest):
        return None
    have = "no round" if newest is None else f"round {newest}"
    return f"it has signed a set of round {signed.round}, and its store knows of {have} and not of that set"


def next_step(helper: str, missing: str) -> str:
    """Say what is wrong with a restored store, and what to do next."""
    return (
        f"the store of {helper} is an old copy, or a new one in the place of a lost one: {missing}. It opens nothing "
        f"any more. `foltr helper enrol {helper} --replace`, an empty store, `foltr helper keys`, `foltr policy new`"
    )
