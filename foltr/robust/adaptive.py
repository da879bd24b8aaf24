"""The adaptive defence: the mean while updates look honest, and the mean of the unsuspected while they do not.

A rule that looks at one round must pay for its safety in every round (thesis, Section 5.7), and with noisy clicks it
still takes four colluders of ten for the honest ones. This one looks at the clients' history (`foltr.robust.evidence`):
as long as nothing there is beyond chance the result is the mean. A client against whom the evidence is strong is left
out, and counted again when it has become weak: the two bounds are apart, so that nobody flickers. What is much longer
than usual is shortened to the usual length at once, without waiting for evidence.

Fewer than half of all clients that can be judged are ever suspected, whoever is in the round. Where more look
suspicious nobody can say who is honest: the operator is told, and the fallback takes the place of the mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foltr.errors import DataError
from foltr.robust.evidence import LONGEST, Evidence, evidence_of, measure, update_records
from foltr.robust.records import Records
from foltr.robust.report import Finding
from foltr.robust.spec import ABANDON, MEAN, RuleSpec, read_rule

_LEAST_CLIENTS = 4
_LEAST_UPDATES = 6
_LENGTHS_KEPT = 20
# Rounds for which a client that sends nothing still counts among the clients that others are compared with.
_ACTIVE = 200
# Honest federations of clients alike stayed below all of these, with three click models on two data sets.
_BEHIND, _OPPOSED = 4.5, 1.5
_DRIFT, _DRIFT_OVER_MEDIAN = 5.0, 2.5
_COPIES = 0.6
_LOG_LENGTH, _LOG_LENGTH_ALONE = 1.2, 1.7
_NO_MORE_BEHIND, _NO_MORE_DRIFT, _NO_MORE_COPIES, _NO_MORE_LOG_LENGTH = 3.0, 2.5, 0.3, 0.8
# Shortened besides: steadily longer than the others, by so many standard errors and by a factor of exp(0.5).
_STEADILY, _STEADILY_LOG = 6.0, 0.5
# Who is new among others who are not has yet to show that its updates are not always so long.
_LONGEST_OF_NEWCOMERS = 1.5
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
    lengths = records.lengths
    compared = int(live.sum()) >= _LEAST_CLIENTS
    if compared:
        centre = live & ~before if (live & ~before).any() else live
        lengths = (*lengths, float(np.median((measured.lengths / per_interactions)[centre])))[-_LENGTHS_KEPT:]
    if not lengths:  # too few to say what is usual, in this round and in all before
        after = records.after(names, own, records.progress, lengths, undecided=False)
        nothing = np.zeros(len(names))
        return Assessment(MEAN, before, nothing + 1.0, ("",) * len(names), nothing, tuple(findings), None, after)

    usual = float(np.median(lengths)) * per_interactions
    update_records(own, measured, usual, ~before, compared=compared)
    after = records.after(names, own, records.progress, lengths, undecided=records.undecided)
    crowd, place = _crowd(after, names)
    judged = own["n_updates"] >= _LEAST_UPDATES
    if len(crowd) >= _LEAST_CLIENTS and judged.any():
        found = evidence_of(own, crowd, place)
        strong, weak = judged & _strong(found, own), _weak(found)
        suspected = strong | (before & ~weak)
        # Those of this round are judged anew, the others as they were.
        n_suspected = int((crowd["n_suspected"] > 0).sum() - before.sum() + suspected.sum())
        undecided = 2 * n_suspected >= len(crowd)
        if undecided:
            suspected = before
    else:
        found, suspected, undecided = None, before, records.undecided
    own["n_suspected"] = np.where(suspected, own["n_suspected"] + 1, 0)
    factors = _factors(measured.lengths, usual, found, judged, established=2 * len(crowd) > len(after.clients))
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
        memory=records.after(names, own, records.progress, lengths, undecided=undecided),
    )


def remember(assessment: Assessment, vector: NDArray[np.float64]) -> bytes:
    """The memory for the next round, once this one has made ``vector`` (d,) of its updates."""
    records = assessment.memory
    length, usual = float(np.linalg.norm(vector)), float(np.median(records.lengths)) if records.lengths else np.inf
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


def _crowd(records: Records, names: tuple[str, ...]) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """The records of all clients that can be judged, and where those of this round are among them, or -1."""
    clients = records.clients
    recent = clients["last_round"] > records.n_rounds - _ACTIVE
    at = np.flatnonzero((clients["n_updates"] >= _LEAST_UPDATES) & recent)
    places = {records.client_ids[i]: place for place, i in enumerate(at.tolist())}
    return clients[at], np.array([places.get(name, -1) for name in names], np.int64)


def _strong(found: Evidence, own: NDArray[np.void]) -> NDArray[np.bool_]:
    # Where all differ, as with labels of their own, the median is high too.
    drifts = (found.drift > _DRIFT) & (found.drift > _DRIFT_OVER_MEDIAN * found.median_drift)
    pulls_against = (found.opposed > _OPPOSED) & (found.behind > _BEHIND)
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
    limit = np.full(len(lengths), LONGEST)
    if established:
        limit[~judged] = _LONGEST_OF_NEWCOMERS
    if found is not None:
        above = found.log_length - found.median_log_length
        steadily = judged & (found.excess_length > _STEADILY) & (above > _STEADILY_LOG)
        limit[steadily] = 1.0
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
