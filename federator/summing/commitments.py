"""The commitments of helpers to the sets of a round: a sum is asked for with those of all other helpers.

They are not stored: a helper says the same again, as often as it is asked. Nothing here reads a clock, awaits or sends.
"""

from collections.abc import Collection


class Commitments:
    """What the helpers of a round have committed themselves to, as they signed it, by cohort."""

    def __init__(self, helpers: Collection[str]) -> None:
        self._helpers = list(helpers)
        self._signed: dict[int, dict[str, bytes]] = {}

    def take(self, cohort: int, helper: str, signed: bytes) -> bool:
        """Take a helper's commitment to the set of a cohort; return whether it is the last one that was missing."""
        of_cohort = self._signed.setdefault(cohort, {})
        if helper in of_cohort:
            return False
        of_cohort[helper] = signed
        return self.are_whole(cohort)

    def is_missing(self, cohort: int, helper: str) -> bool:
        return helper not in self._signed.get(cohort, {})

    def are_whole(self, cohort: int) -> bool:
        """Whether all helpers have committed to the set of a cohort."""
        return len(self._signed.get(cohort, {})) == len(self._helpers)

    def beside(self, cohort: int, helper: str) -> list[bytes]:
        """Return what goes with the question to a helper: the commitments of all others; none before all are here."""
        if not self.are_whole(cohort):
            return []
        return [self._signed[cohort][name] for name in self._helpers if name != helper]
