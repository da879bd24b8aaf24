"""The adaptive defence: the mean while updates look honest, and the mean of unsuspected clients while they do not.

A rule that looks at one round must pay for its safety in every round (thesis, Section 5.7), and with noisy clicks it
still mistakes four colluders of ten for the honest ones. This one looks at the clients' history: while nothing there is
beyond chance the result is the mean. A client with strong evidence against it (`foltr.core.aggregation.evidence`) is
excluded, and counts again once the evidence is weak: the two bounds differ, so that clients do not flicker. Every other
client has budgets (`foltr.core.aggregation.budgets`), which bound how far it can take the model, detected or not. An
update much longer than usual is shortened to the usual length at once, and copies share one weight.

Fewer than half of all judged clients are ever suspected, including those absent from the round. If more look suspicious
nobody can say who is honest: only the strongest cases below half are excluded, and the fallback replaces the mean.

`assess` takes a round through four steps. It *measures* the updates; with fewer than four clients the usual is unknown,
and it ends there. It makes *steps* of them in the mean's terms, and adds these to the records of their clients.
It *judges* the round's clients: a client that has sent enough is compared with the crowd, all that can be judged,
unless these sent too small a share of all updates. And it *acts*: suspects are excluded, steps beyond a client's
budgets are drawn towards the median step, and changes are reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation import budgets
from foltr.core.aggregation.client_records import KEY_BYTES, ClientRecords
from foltr.core.aggregation.coordinates import scaled_median
from foltr.core.aggregation.copies import near_another, weight_shares
from foltr.core.aggregation.defence_findings import client_findings, federation_findings, reasons_of
from foltr.core.aggregation.evidence import (
    DRIFT_FADES,
    LONGEST,
    Evidence,
    NormalisedSteps,
    UpdateMeasures,
    energies,
    evidence_of,
    length_evidence,
    measure,
    sample_of,
    sketch_of,
    update_lengths,
    update_records,
    update_sizes,
)
from foltr.core.aggregation.reference_clients import (
    LEAST_CLIENTS,
    LEAST_UPDATES,
    WELL_KNOWN,
    ReferenceClients,
    has_well_known,
    reference_clients,
    trusted_elsewhere,
    usual_length,
)
from foltr.core.aggregation.round_report import Finding
from foltr.core.aggregation.rule_spec import ABANDON, MEAN, RuleSpec, read_rule
from foltr.core.aggregation.suspicion import evidence_strength, is_weak, strongest
from foltr.core.errors import DataError

# Also shortened: steadily longer than the others, by so many standard errors and by a factor of exp(0.5).
_STEADILY, _STEADILY_LOG = 6.0, 0.5
# While few clients are known most may be hostile; then the limit is so many times the shortest quarter's length.
_LONGEST_AT_FIRST, _SHORTEST_QUARTER = 20.0, 0.25
# A newcomer among known clients has yet to show that its updates are not always so long.
_LONGEST_OF_NEWCOMERS = 2.0
# An update of many interactions may be longer, but the number is only claimed.
_MOST_FOR_INTERACTIONS = 2.0


@dataclass(frozen=True, eq=False)
class Assessment:
    """What to do with the updates of one round.

    Attributes:
        rule: for the updates that are not excluded; unused if the fallback is to make no model.
        excluded: (n,) bool.
        factors: (n,) float64 in [0, 1]: multiplies each update.
        median_factors: (n,) float64: how many of ``median_step`` are then added to each; 0 for most.
        median_step: (d,) float64, in usual lengths, zeros in a round of strangers; None if none is added.
        weight_shares: (n,) float64 in (0, 1]: the share of its weight that each keeps beside copies of it.
        reasons: why each is excluded, or counts less than whole; "" for the others.
        scores: (n,) float64, by how many standard errors each is less aligned than the median client.
        findings: what has changed, with the evidence.
        fallback_reason: why ``rule`` is the fallback; None if it is the mean.
        farthest: the farthest that any client has led from the median client after this round, in budgets
            (`foltr.core.aggregation.budgets.farthest_in_budgets`); None if no steps were counted.
        memory: for the next round; `remember` completes it.
    """

    rule: RuleSpec
    excluded: NDArray[np.bool_]
    factors: NDArray[np.float64]
    median_factors: NDArray[np.float64]
    median_step: NDArray[np.float64] | None
    weight_shares: NDArray[np.float64]
    reasons: tuple[str, ...]
    scores: NDArray[np.float64]
    findings: tuple[Finding, ...]
    fallback_reason: str | None
    farthest: float | None
    memory: ClientRecords


@dataclass(frozen=True, eq=False)
class _Verdict:
    """A judgement of the n clients of a round.

    Attributes:
        evidence: behind it; None while nobody can be judged.
        judged: (n,) bool, who has sent enough.
        suspected: (n,) bool.
        undecided: so many of the crowd look suspicious that nobody can say who is honest; ``suspected`` are the
            strongest cases, below half of the crowd.
    """

    evidence: Evidence | None
    judged: NDArray[np.bool_]
    suspected: NDArray[np.bool_]
    undecided: bool


def assess(
    memory: bytes | None,
    client_ids: Sequence[str],
    rows: NDArray[np.floating],
    weights: NDArray[np.float64],
    spec: RuleSpec,
    rng: np.random.Generator | None = None,
) -> Assessment:
    """Judge the clients of a round by this round and all before.

    Args:
        memory: what `remember` returned for the round before; None in the first.
        rows: (n, d) finite updates, in the order of ``client_ids``.
        weights: (n,) how many interactions each was learned from, or 1 each; above 0.
        rng: draws the key of the sketches in the first round; None: a public key.
    """
    names = tuple(client_ids)
    records, findings = _recall(memory, rows.shape[1], rng)
    own = records.for_clients(names)
    before = own["n_suspected"] > 0

    measured = measure(rows, records.progress, records.key)
    allowance = _allowance(weights)
    update_sizes(own, measured.lengths / allowance)
    after = records.after(names, own, records.progress, undecided=records.undecided)
    length = usual_length(after)
    if length is None:
        return _unjudged(before, after, findings)
    usual = length * allowance
    update_lengths(own, measured.lengths, usual)
    after.put(names, own)

    crowd = reference_clients(after, names)
    shortening = _shortening(measured.lengths, usual, own, after, crowd, allowance)
    relative = measured.sketches * (shortening / usual)[:, None]
    live = measured.lengths > 0.0
    trusted = _trusted(live, before, crowd)
    # Strangers could choose their median step, so their steps count from the present model.
    median_step: NDArray[np.float64] | None = np.zeros(rows.shape[1])
    if not _is_of_strangers(live & ~before, own, after):
        median_step = _median_step(rows, measured, shortening / (usual * allowance), trusted)
    # What clients have in common grows with their interactions, chance with the root of them: in its usual lengths an
    # update leads so many times as far as the median step.
    expected = None if median_step is None else allowance[:, None] * sketch_of(median_step, records.key)
    steps = NormalisedSteps(
        live,
        measured.along * shortening / usual,
        None if expected is None else relative - expected,
        near_another(relative),
    )
    energy = energies(steps, trusted)
    update_records(own, steps, energy)
    after.put(names, own)

    crowd = reference_clients(after, names)
    verdict = _judge(own, before, crowd, undecided=records.undecided, differing=spec.parameter("differing") > 0.0)
    own["n_suspected"] = np.where(verdict.suspected, own["n_suspected"] + 1, 0)
    after.put(names, own)
    granted, strangers, farthest = _spend(own, steps, verdict, after, names, established=crowd.established)
    after.put(names, own)

    findings += client_findings(names, own, before, verdict.evidence, spec)
    findings += federation_findings(records.undecided, verdict.undecided, len(crowd.clients), spec)
    evidence = verdict.evidence
    shares = weight_shares(relative, own["copies"], own["n_compared"])
    return Assessment(
        rule=_fallback(spec) if verdict.undecided else MEAN,
        excluded=verdict.suspected,
        factors=shortening * granted,
        median_factors=(1.0 - granted) * usual * allowance,
        median_step=median_step,
        weight_shares=shares,
        reasons=reasons_of(evidence, verdict.suspected, shortening, granted, shares),
        scores=np.zeros(len(names)) if evidence is None else evidence.behind,
        findings=tuple(findings),
        fallback_reason="half of the clients or more look suspicious" if verdict.undecided else None,
        farthest=farthest,
        memory=replace(after, undecided=verdict.undecided, strangers=strangers),
    )


def remember(assessment: Assessment, vector: NDArray[np.float64]) -> bytes:
    """Return the memory for the next round, given the ``vector`` (d,) made from this round's updates."""
    records = assessment.memory
    length, usual = float(np.linalg.norm(vector)), usual_length(records) or np.inf
    # One bad round must not set the direction by which all later ones are measured.
    vector = vector * min(1.0, usual / length) if length > 0.0 else vector
    progress = (records.progress.astype(np.float64) + vector).astype(np.float32)
    return replace(records, progress=progress).to_bytes()


def _recall(memory: bytes | None, dim: int, rng: np.random.Generator | None) -> tuple[ClientRecords, list[Finding]]:
    """Read the memory; if it cannot be read, start without and report that: a reset defence is better than none."""
    key = bytes(KEY_BYTES) if rng is None else rng.bytes(KEY_BYTES)
    try:
        return ClientRecords.from_bytes(memory, dim, key), []
    except DataError as error:
        return ClientRecords.empty(dim, key), [
            Finding("defence_lowered", None, f"{error}; the evidence against every client starts from scratch")
        ]


def _allowance(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) how many times as long as usual updates of so many interactions may be."""
    return np.minimum(np.sqrt(weights / np.median(weights)), _MOST_FOR_INTERACTIONS)


def _judge(
    own: NDArray[np.void], before: NDArray[np.bool_], crowd: ReferenceClients, *, undecided: bool, differing: bool
) -> _Verdict:
    """Judge the clients of a round by their records (n,).

    Args:
        before: (n,) bool, who was suspected before this round.
        undecided: whether the round before was; it stays so while nobody can be judged.
        differing: whether honest clients differ.
    """
    judged = own["n_updates"] >= LEAST_UPDATES
    if not (crowd.established and judged.any()):
        return _Verdict(None, judged, before, undecided)
    evidence = evidence_of(own, crowd.clients, crowd.place, crowd.sample)
    strengths = evidence_strength(evidence, len(crowd.clients), differing=differing)
    suspected = (judged & (strengths > 1.0)) | (before & ~is_weak(evidence, differing=differing))
    # Judge the clients of this round again; the others keep their state.
    n_elsewhere = int((crowd.clients["n_suspected"] > 0).sum() - before.sum())
    most = (len(crowd.clients) - 1) // 2 - n_elsewhere
    undecided = int(suspected.sum()) > most
    return _Verdict(evidence, judged, strongest(suspected, strengths, most), undecided)


def _shortening(
    lengths: NDArray[np.float64],
    usual: NDArray[np.float64],
    own: NDArray[np.void],
    records: ClientRecords,
    crowd: ReferenceClients,
    allowance: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return (n,) the factors that shorten updates too long for chance to the usual length."""
    judged = own["n_updates"] >= LEAST_UPDATES
    limit = np.where(judged | (not crowd.established), LONGEST, _LONGEST_OF_NEWCOMERS)
    if crowd.established:
        evidence = length_evidence(own, crowd.clients)
        above = evidence.log_length - evidence.median
        limit[judged & (evidence.excess > _STEADILY) & (above > _STEADILY_LOG)] = 1.0
    factors = _shortened(lengths, usual, limit)
    if crowd.established:
        return factors
    shortest = usual_length(records, _SHORTEST_QUARTER)
    known = usual if shortest is None else shortest * allowance
    return np.minimum(factors, _shortened(lengths, known, _LONGEST_AT_FIRST))


def _shortened(
    lengths: NDArray[np.float64], usual: NDArray[np.float64], limit: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    return np.where(lengths > limit * usual, usual / np.where(lengths > 0.0, lengths, 1.0), 1.0)


def _median_step(
    rows: NDArray[np.floating], measured: UpdateMeasures, factors: NDArray[np.float64], trusted: NDArray[np.bool_]
) -> NDArray[np.float64] | None:
    """Return (d,) the median step in usual lengths, of ``trusted`` (n,) clients that sent something; None if too few.

    Args:
        factors: (n,) that make each update a step of the median number of interactions, in usual lengths.
    """
    live = measured.lengths > 0.0
    if int(live.sum()) < LEAST_CLIENTS:
        return None
    return scaled_median(rows, factors, np.flatnonzero(live & trusted if (live & trusted).any() else live))


def _is_of_strangers(live: NDArray[np.bool_], own: NDArray[np.void], records: ClientRecords) -> bool:
    """Whether most live clients (n,) of a round are little known although well-known ones still contribute."""
    known = live & (own["n_compared"] >= WELL_KNOWN)
    return bool(live.any() and 2 * known.sum() < live.sum() and has_well_known(records))


def _trusted(live: NDArray[np.bool_], before: NDArray[np.bool_], crowd: ReferenceClients) -> NDArray[np.bool_]:
    """(n,) the clients whose median is the usual in a round: the unsuspected; of them the known, if enough."""
    known = ~before & (crowd.place >= 0)
    return known if crowd.established and int((live & known).sum()) >= LEAST_CLIENTS else ~before


def _spend(
    own: NDArray[np.void],
    steps: NormalisedSteps,
    verdict: _Verdict,
    records: ClientRecords,
    names: tuple[str, ...],
    *,
    established: bool,
) -> tuple[NDArray[np.float64], budgets.SharedSum | None, float | None]:
    """Return (n,) in [0, 1] the share of each step's deviation that counts; the strangers' new sum; and the farthest.

    The budgets in ``own`` (n,) are used up by it. A step of a suspected client is not used, so it uses up nothing. If
    too few are live to define a median step, steps count whole, and use no budgets.
    """
    granted, strangers = np.ones(len(own)), records.strangers
    deviations = steps.deviations
    counted = steps.live & ~verdict.suspected
    if deviations is None or not counted.any():
        return granted, strangers, None
    sums = own["budgets"].astype(np.float64)
    peers = _peers(own, deviations, counted, records, trusted_elsewhere(records, names, established=established))
    faded = budgets.faded_steps(own["n_compared"][counted])
    bounds = budgets.deviation_budgets(peers)
    granted[counted] = budgets.granted_shares(sums[counted], deviations[counted], faded, bounds)
    farthest = budgets.farthest_in_budgets(sums[counted], deviations[counted], granted[counted], faded, bounds)
    known = counted & (own["n_compared"] >= WELL_KNOWN)
    unknown = counted & ~known
    if unknown.any() and has_well_known(records):
        used = deviations * granted[:, None]
        strangers = strangers or budgets.SharedSum.empty(deviations.shape[1])
        share, strangers, together = strangers.granted(used[unknown], used[known], peers.deviation)
        granted[unknown] *= share
        farthest = max(farthest, together)
    shares = np.where(counted, granted, 0.0)
    own["budgets"] = np.where(steps.live[:, None, None], budgets.sums_after(sums, deviations, shares), own["budgets"])
    return granted, strangers, farthest


def _peers(
    own: NDArray[np.void],
    deviations: NDArray[np.float64],
    counted: NDArray[np.bool_],
    records: ClientRecords,
    others: NDArray[np.void],
) -> budgets.BudgetPeers:
    """Return the clients that budgets are measured by: those that count in this round, and unsuspected others.

    Of the round only those that can be judged, if they are enough.
    """
    judged = counted & (own["n_updates"] >= LEAST_UPDATES)
    chosen = judged if int(judged.sum()) + len(others) >= LEAST_CLIENTS else counted
    mine = own[chosen]
    asked = budgets.sums_if_unlimited(mine["budgets"].astype(np.float64), deviations[chosen])
    everybody = np.concatenate([asked, others["budgets"]])
    n_steps = np.concatenate([mine["n_compared"], others["n_compared"]])
    some = sample_of(len(everybody), records.key, records.n_rounds)
    energy = np.concatenate([mine["drift_energy"], others["drift_energy"]])[some]
    deviation = float(np.median(energy / budgets.faded_squares(n_steps[some], DRIFT_FADES)))
    return budgets.BudgetPeers(everybody[some], n_steps[some], deviation)


def _unjudged(before: NDArray[np.bool_], after: ClientRecords, findings: list[Finding]) -> Assessment:
    """Assess a round with too few clients to say what is usual: clients suspected before stay excluded."""
    n = len(before)
    ones, zeros = np.ones(n), np.zeros(n)
    return Assessment(MEAN, before, ones, zeros, None, ones, ("",) * n, zeros, tuple(findings), None, None, after)


def _fallback(spec: RuleSpec) -> RuleSpec:
    if spec.fallback == ABANDON:
        return MEAN
    return read_rule(spec.fallback, byzantine=spec.byzantine, fallback=spec.fallback)
