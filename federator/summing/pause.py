"""How long rounds are held back after most norm proofs of a round have failed.

Such a round has cost each of its devices a participation, and those are numbered for life. Who lies is not known, and
the next round may well end likewise. So devices hear of it only after a pause, ever longer until one ends with a model,
or the operator makes a policy with other helpers, for which nothing is held back. How many have ended so is stored, and
a federator that starts again waits as long.
"""

from storage.sum_records import Disagreements

FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 86_400.0


def held_until(ended: Disagreements, now: float) -> float:
    """Return until when rounds are held back, in epoch seconds; 0 where none ended so since the last model."""
    if ended.closed_at is None:
        return 0.0
    # From now at most: where a clock was set back, a round that ended in the future holds back nobody for longer.
    return min(ended.closed_at.timestamp(), now) + min(FIRST_PAUSE_S * 2.0 ** (ended.n_rounds - 1), LONGEST_PAUSE_S)
