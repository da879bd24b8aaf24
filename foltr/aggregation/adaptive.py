"""The adaptive defence: the mean while updates look honest, and the mean of the unsuspected while they do not.

A rule that looks at one round must pay for its safety in every round (thesis, Section 5.7), and with noisy clicks it
still takes four colluders of ten for the honest ones. This one looks at the clients' history
(`foltr.aggregation.evidence`): as long as nothing there is beyond chance the result is the mean. A client against
whom the evidence is strong is left out, and counted again when it has become weak: the two bounds are apart, so that
nobody flickers. What is much longer than usual is shortened to the usual length at once, without waiting for
evidence.

Fewer than half of all clients that can be judged are ever suspected, whoever is in the round. Where more look
suspicious nobody can say who is honest: the operator is told, and the fallback takes the place of the mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foltr.aggregation.client_records import Records
from foltr.aggregation.evidence import LONGEST, Evidence, evidence_of, measure, update_records, update_sizes
from foltr.aggregation.round_report import Finding
from foltr.aggregation.rule_spec import ABANDON, MEAN, RuleSpec, read_rule
from foltr.errors import DataError

_LEAST_CLIENTS = 4
_LEAST_UPDATES = 6
# Rounds for which a client that sends nothing still counts among the clients that others are compared with.
_ACTIVE = 200
# What those who can be judged must have sent of all updates before anybody is: counted in updates, which cost more
# than names.
_MOST_OF_UPDATES = 0.75
# Honest federations of clients alike stayed below all of these, with three click models on two data sets.
_BEHIND, _OPPOSED = 4.5, 1.5
# So many clients these two are for.
_BOUNDS_FOR = 10
_DRIFT, _DRIFT_OVER_MEDIAN = 5.0, 2.5
_COPIES = 0.6
_LOG_LENGTH, _LOG_LENGTH_ALONE = 1.2, 1.7
_NO_MORE_BEHIND, _NO_MORE_DRIFT, _NO_MORE_COPIES, _NO_MORE_LOG_LENGTH = 3.0, 2.5, 0.3, 0.8
# Shortened besides: steadily longer than the others, by so many standard errors and by a factor of exp(0.5).
_STEADILY, _STEADILY_LOG = 6.0, 0.5
# While few are known most of them may be hostile: so many times what the shortest quarter of them sends.
_LONGEST_AT_FIRST, _SHORTEST_QUARTER = 20.0, 0.25
# Who is new among others who are not has yet to show that its updates are not always so long.
_LONGEST_OF_NEWCOMERS = 2.0
# An update of many interactions may be longer, but they are only claimed.
_MOST_FOR_INTERACTIONS = 2.0


@dataclass(frozen=True, eq=False)
class Assessment:
    """What to do with the updates of one round.

    Attributes:
        rule: to use on those that are not excluded; of no meaning where the fallback is to make no model.
        excluded: (n,) bool.
        factors: (n,) float64 in (0, 1]: what each update is to be shortened by.
        reasons: why each is excluded or shortened; "" for the others.
        scores: (n,) float64, by how many standard errors each is less aligned than the median client.
        findings: what has changed, with the evidence.
        fallback_reason: why ``rule`` is the fallback; None where it is the mean.
        memory: for the next round; `remember` completes it.
    """

    rule: RuleSpec
    excluded: NDArray[np.bool_]
    factors: NDArray[np.float64]
    reasons: tuple[str, ...]
    scores: NDArray[np.float64]
    findings: tuple[Finding, ...]
    fallback_reason: str | None
    memory: Records


def assess(
    memory: bytes | None,
    client_ids: Sequence[str],
    rows: NDArray[np.floating],
    weights: NDArray[np.float64],
    spec: RuleSpec,
) -> Assessment:
    """Judge the clients of a round by this round and all before.

    Args:
        memory: what `remember` returned for the round before; None in the first.
        rows: (n, d) finite updates, in the order of ``client_ids``.
        weights: (n,) how many interactions each was learned from, or 1 each; above 0.
    """
    names = tuple(client_ids)
    records, findings = _recall(memory, rows.shape[1])
    own = records.of(names)
    before = own["n_suspected"] > 0
    measured = measure(rows, records.progress)
    live = measured.lengths > 0.0
    per_interactions = np.minimum(np.sqrt(weights / np.median(weights)), _MOST_FOR_INTERACTIONS)
    update_sizes(own, measured.lengths / per_interactions)
    after = records.after(names, own, records.progress, undecided=records.undecided)
    usual_length = _usual_length(after)
    if usual_length is None:  # too few to say what is usual
        nothing = np.zeros(len(names))
        return Assessment(MEAN, before, nothing + 1.0, ("",) * len(names), nothing, tuple(findings), None, after)

    usual = usual_length * per_interactions
    compared = int(live.sum()) >= _LEAST_CLIENTS
    update_records(own, measured, usual, ~before, compared=compared)
    after.put(names, own)
    crowd, place, established = _crowd(after, names)
    judged = own["n_updates"] >= _LEAST_UPDATES
    if established and judged.any():
        found = evidence_of(own, crowd, place)
        strong, weak = judged & _strong(found, own, len(crowd)), _weak(found)
        suspected = strong | (before & ~weak)
        # Those of this round are judged anew, the others as they were.
        n_suspected = int((crowd["n_suspected"] > 0).sum() - before.sum() + suspected.sum())
        undecided = 2 * n_suspected >= len(crowd)
        if undecided:
            suspected = before
    else:
        found, suspected, undecided = None, before, records.undecided
    own["n_suspected"] = np.where(suspected, own["n_suspected"] + 1, 0)
    factors = _factors(measured.lengths, usual, found, judged, established=established)
    if not established:
        shortest = (_usual_length(after, _SHORTEST_QUARTER) or usual_length) * per_interactions
        factors = np.minimum(factors, _shortened(measured.lengths, shortest, _LONGEST_AT_FIRST))
    after.put(names, own)
    findings += _findings(names, own, before, found, spec)
    findings += _of_all(records.undecided, undecided, len(crowd), spec)
    return Assessment(
        rule=_fallback(spec) if undecided else MEAN,
        excluded=suspected,
        factors=factors,
        reasons=_reasons(found, suspected, factors),
        scores=np.zeros(len(names)) if found is None else found.behind,
        findings=tuple(findings),
        fallback_reason="half of the clients or more look suspicious" if undecided else None,
        memory=replace(after, undecided=undecided),
    )


def remember(assessment: Assessment, vector: NDArray[np.float64]) -> bytes:
    """The memory for the next round, once this one has made ``vector`` (d,) of its updates."""
    records = assessment.memory
    length, usual = float(np.linalg.norm(vector)), _usual_length(records) or np.inf
    # One round that went wrong must not be the direction that all later ones are measured by.
    vector = vector * min(1.0, usual / length) if length > 0.0 else vector
    progress = (records.progress.astype(np.float64) + vector).astype(np.float32)
    return replace(records, progress=progress).to_bytes()


def _recall(memory: bytes | None, dim: int) -> tuple[Records, list[Finding]]:
    """What is remembered; nothing, with a finding, where it cannot be read: a defence that forgets beats none."""
    try:
        return Records.from_bytes(memory, dim), []
    except DataError as error:
        return Records.empty(dim), [Finding("defence_lowered", None, f"{error}; every client is judged anew")]


def _usual_length(records: Records, quantile: float = 0.5) -> float | None:
    """The median, or another quantile, over all known clients of what each one's updates are long.

    Not over a round's, in which hostile ones may happen to be the most. Of two in the middle it is the lower. None for
    too few clients.
    """
    clients = records.clients
    known = (clients["size_weight"] > 0.0) & (clients["last_round"] > records.n_rounds - _ACTIVE)
    if int(known.sum()) < _LEAST_CLIENTS:
        return None
    trusted = known & (clients["n_suspected"] == 0)
    of = clients[trusted if trusted.any() else known]
    sizes = np.sort(of["log_size"] / of["size_weight"])
    return float(np.exp(sizes[int(quantile * (len(sizes) - 1))]))


def _crowd(records: Records, names: tuple[str, ...]) -> tuple[NDArray[np.void], NDArray[np.int64], bool]:
    """The records of all clients that can be judged, and where those of this round are among them, or -1.

    Also whether others can be compared with them: the first who happen to have sent enough may be the hostile ones.
    """
    clients = records.clients
    recent = clients["last_round"] > records.n_rounds - _ACTIVE
    can_be_judged = recent & (clients["n_updates"] >= _LEAST_UPDATES)
    at = np.flatnonzero(can_be_judged)
    places = {records.client_ids[i]: place for place, i in enumerate(at.tolist())}
    crowd = clients[at]
    most = crowd["n_updates"].sum() >= _MOST_OF_UPDATES * clients["n_updates"][recent].sum()
    place = np.array([places.get(name, -1) for name in names], np.int64)
    return crowd, place, len(crowd) >= _LEAST_CLIENTS and bool(most)


def _strong(found: Evidence, own: NDArray[np.void], n_compared: int) -> NDArray[np.bool_]:
    # The more clients, the farther behind the last of them is by chance: about as the largest of so many normal ones.
    last = math.sqrt(2.0 * math.log(max(n_compared, _BOUNDS_FOR))) - math.sqrt(2.0 * math.log(_BOUNDS_FOR))
    # Where all differ, as with labels of their own, the median is high too.
    drifts = (found.drift > _DRIFT) & (found.drift > _DRIFT_OVER_MEDIAN * found.median_drift)
    pulls_against = (found.opposed > _OPPOSED + last) & (found.behind > _BEHIND + last)
    too_long = (found.log_length > _LOG_LENGTH_ALONE) | ((found.log_length > _LOG_LENGTH) & (found.behind > 1.0))
    return pulls_against | (drifts & (own["drift_energy"] > 0.0)) | (found.copies > _COPIES) | too_long


def _weak(found: Evidence) -> NDArray[np.bool_]:
    return (
        # Far ahead is as suspicious: which way is forward may turn while attackers and the others pull about equally.
        (np.abs(found.behind) < _NO_MORE_BEHIND)
        & (found.drift < _NO_MORE_DRIFT)
        & (found.copies < _NO_MORE_COPIES)
        & (found.log_length < _NO_MORE_LOG_LENGTH)
    )


def _factors(
    lengths: NDArray[np.float64],
    usual: NDArray[np.float64],
    found: Evidence | None,
    judged: NDArray[np.bool_],
    *,
    established: bool,
) -> NDArray[np.float64]:
    """(n,) by what each update is shortened, to the usual length where it is too long for chance."""
    limit = np.where(judged | (not established), LONGEST, _LONGEST_OF_NEWCOMERS)
    if found is not None:
        above = found.log_length - found.median_log_length
        steadily = judged & (found.excess_length > _STEADILY) & (above > _STEADILY_LOG)
        limit[steadily] = 1.0
    return _shortened(lengths, usual, limit)


def _shortened(
    lengths: NDArray[np.float64], usual: NDArray[np.float64], limit: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    return np.where(lengths > limit * usual, usual / np.where(lengths > 0.0, lengths, 1.0), 1.0)


def _fallback(spec: RuleSpec) -> RuleSpec:
    if spec.fallback == ABANDON:
        return MEAN
    return read_rule(spec.fallback, byzantine=spec.byzantine, fallback=spec.fallback)


def _reasons(found: Evidence | None, suspected: NDArray[np.bool_], factors: NDArray[np.float64]) -> tuple[str, ...]:
    reasons = []
    for i, (left_out, factor) in enumerate(zip(suspected.tolist(), factors.tolist(), strict=True)):
        if left_out:
            reasons.append("suspected before" if found is None else _told(found, i))
        else:
            reasons.append("" if factor == 1.0 else f"{1 / factor:.1f} times as long as usual")
    return tuple(reasons)


def _told(found: Evidence, i: int) -> str:
    """The evidence against one client in words, the strongest kinds only."""
    parts = []
    if found.behind[i] > _NO_MORE_BEHIND:
        parts.append(f"pulls against the others, {found.behind[i]:.1f} standard errors below their median")
    if found.behind[i] < -_NO_MORE_BEHIND:
        parts.append(f"pulls apart from the others, {-found.behind[i]:.1f} standard errors above their median")
    if found.drift[i] > _NO_MORE_DRIFT:
        parts.append(f"deviates steadily, {found.drift[i]:.1f} times as far as by chance")
    if found.copies[i] > _NO_MORE_COPIES:
        parts.append(f"same as an older client's in {100 * found.copies[i]:.0f} % of its rounds")
    if found.log_length[i] > _NO_MORE_LOG_LENGTH:
        parts.append(f"{np.exp(found.log_length[i]):.1f} times as long as usual")
    return "; ".join(parts) or "suspected before"


def _findings(
    names: tuple[str, ...], own: NDArray[np.void], before: NDArray[np.bool_], found: Evidence | None, spec: RuleSpec
) -> list[Finding]:
    if found is None:
        return []
    findings = []
    patience = int(spec.parameter("patience"))
    for i, name in enumerate(names):
        n_suspected = int(own["n_suspected"][i])
        rounds = f"over {int(own['n_updates'][i])} updates"
        if n_suspected == 1:
            findings.append(Finding("defence_raised", name, f"left out from now on: {_told(found, i)}, {rounds}"))
        elif before[i] and n_suspected == 0:
            detail = (
                f"counted again: {found.behind[i]:.1f} standard errors below the median, drift {found.drift[i]:.1f}"
            )
            findings.append(Finding("defence_lowered", name, f"{detail}, {rounds}"))
        # Again and again, ever more rarely: it may have been quarantined and let out in between.
        times, rest = divmod(n_suspected, patience)
        if times and not rest and times & (times - 1) == 0:
            detail = f"suspected in {n_suspected} updates in a row: {_told(found, i)}; see foltr clients quarantine"
            findings.append(Finding("quarantine_proposed", name, detail))
    return findings


def _of_all(before: bool, undecided: bool, n_judged: int, spec: RuleSpec) -> list[Finding]:
    """The switch to the fallback and back."""
    if undecided and not before:
        instead = "no model is made" if spec.fallback == ABANDON else f"{spec.fallback} is used"
        detail = f"half of {n_judged} clients or more look suspicious, so none can be told apart; {instead}"
        return [Finding("defence_raised", None, detail)]
    if before and not undecided:
        return [Finding("defence_lowered", None, "fewer than half of the clients look suspicious; the mean is used")]
    return []
