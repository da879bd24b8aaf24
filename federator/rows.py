"""Turns decisions into rows, and a stored round into a running one."""

from collections.abc import Mapping
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.client_records import with_progress_of
from foltr.core.aggregation.vote_result import VoteResult
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.states import RoundState
from foltr.core.unlearning.measures import cosine, relative_distance
from foltr.federator.clock import to_datetime
from foltr.federator.closing.stored_rules import stored_rule
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.round import RecordedUpdate, Round, RoundPolicy, SelectedClients
from foltr.federator.secure_terms import SecureTerms
from foltr.storage.erasure_records import JobCompletion, UnlearningJobRow
from foltr.storage.records import Batch, DeadlineChange, ModelRow, NewEvent, RoundOpening, RoundRow
from foltr.storage.restored_records import Restoration


def resumed_round(
    row: RoundRow,
    contributions: Mapping[str, RecordedUpdate],
    now: float,
    grace_s: float,
    terms: SecureTerms | None = None,
) -> Round:
    """Resume a stored round after a restart, see `Round.resume`.

    Args:
        contributions: the stored updates by client_id.
        now: epoch seconds.

    Raises:
        SettingsError: this foltr does not know its rule.
    """
    return Round.resume(
        row.number,
        row.base_version,
        _policy_of(row),
        opened_at=row.opened_at.timestamp(),
        closes_at=row.closes_at.timestamp(),
        state=row.state,
        contributions=contributions,
        selection=_selection_of(row),
        terms=terms,
        now=now,
        grace_s=grace_s,
    )


def shared_round(row: RoundRow, contributions: Mapping[str, RecordedUpdate], n_collected: int) -> Round:
    """Make a worker's view of a round: as stored, with the contributions of a few of its clients.

    Args:
        n_collected: the number of all its updates.

    Raises:
        SettingsError: this foltr does not know its rule.
    """
    return Round(
        row.number,
        row.base_version,
        _policy_of(row),
        row.opened_at.timestamp(),
        row.closes_at.timestamp(),
        _selection_of(row),
        row.state,
        dict(contributions),
        n_others=n_collected - len(contributions),
    )


def _selection_of(row: RoundRow) -> SelectedClients | None:
    if row.selection_seed is None or row.selection_cutoff is None:
        return None
    return SelectedClients(row.selection_seed, row.selection_cutoff, row.n_selected or 0, row.n_eligible or 0)


def _policy_of(row: RoundRow) -> RoundPolicy:
    return RoundPolicy(
        row.min_clients,
        row.max_clients,
        row.min_time_s,
        row.max_time_s,
        pacing=row.pacing,
        staleness_limit=row.staleness_limit,
        staleness_exponent=row.staleness_exponent,
        rule=stored_rule(row),
        fills=row.period_s is not None,
    )


def deadline_of(current: Round | None) -> DeadlineChange | None:
    """Make the row of a round's present deadline; None if no round takes updates."""
    if current is None or current.state is not RoundState.COLLECTING:
        return None
    opened_at, closes_at = to_datetime(current.opened_at), to_datetime(current.closes_at)
    return DeadlineChange(current.number, opened_at, current.policy.max_time_s, closes_at)


def batch_of(decisions: Decisions, stop_collecting: int | None, published: tuple[int, datetime] | None) -> Batch:
    """Make the rows of one batch of messages; the other two arguments are as in `Batch`.

    An update withdrawn only because its client is being forgotten is deleted with the client's other data, in that
    transaction: a process that dies before has done neither. A client that is revoked or quarantined in the same batch
    leaves the round with it.
    """
    erased = {wanted.client_id for wanted in decisions.erasures}.difference(decisions.excluded)
    return Batch(
        updates=decisions.updates,
        events=decisions.events,
        membership=decisions.membership,
        withdrawn=[(number, client_id) for number, client_id in decisions.withdrawn if client_id not in erased],
        roster=decisions.roster,
        deadline=decisions.deadline,
        allowed_reset=decisions.allowed_reset,
        quarantines=decisions.quarantines,
        orders=decisions.orders,
        policy=decisions.policy,
        stop_collecting=stop_collecting,
        published=published,
    )


def swap_of(
    job: UnlearningJobRow, before: ModelRow, at: datetime, abandons: int | None, opening: RoundOpening | None
) -> JobCompletion:
    """Make the rows of the swap in which a job's model replaces ``before``.

    The evidence against clients stays that of the rounds; otherwise a single erasure would readmit every excluded
    client. Measurements of the job's steps are deleted with the job, except the direction of its progress.

    Args:
        abandons: the open round, if any; ``opening`` is of the one that follows it.
    """
    version, evidence = before.version + 1, before.defence_state
    detail = f"job {job.number}: model {version} replaces model {before.version}"
    return JobCompletion(
        version,
        at,
        _figures_of_swap(unpack_vector(before.weights), unpack_vector(job.weights or b"")),
        abandons,
        opening,
        [NewEvent(at, "unlearning_done", detail, round=abandons)],
        job.optimizer_state,
        None if evidence is None else with_progress_of(evidence, job.defence_state),
    )


def restoration_of(
    anchor: ModelRow, before: ModelRow, why: str, at: datetime, abandons: int, opening: RoundOpening | None
) -> Restoration:
    """Make the rows that take ``before`` back and put the anchor's weights in its place.

    Every client's updates stay evidence, as with `swap_of`; the progress is that of the anchor's path.

    Args:
        why: the reason, as text; the event says what to do about it.
        abandons: the open round; ``opening`` is of the one that follows it.
    """
    version, evidence = before.version + 1, before.defence_state
    detail = (
        f"model {version} has the weights of model {anchor.version} again and replaces model {before.version}: "
        f"{why}. See whose updates made models {anchor.version + 1} to {before.version}, and quarantine clients "
        "that do harm: foltr rounds show N, foltr device quarantine"
    )
    return Restoration(
        version,
        anchor.version,
        at,
        f"models {anchor.version + 1} to {before.version} were rolled back, and the rounds that made them no "
        "longer count",
        abandons,
        opening,
        None if evidence is None else with_progress_of(evidence, anchor.defence_state),
        [NewEvent(at, "model_rolled_back", detail, round=abandons)],
    )


def anchor_moved(newest: ModelRow, anchor: ModelRow, result: VoteResult, at: datetime, number: int) -> NewEvent:
    """Make the event for a model that most clients found better and that becomes the anchor."""
    detail = f"model {newest.version} replaces model {anchor.version} as the anchor: {result.in_words}"
    return NewEvent(at, "anchor_moved", detail, round=number)


def _figures_of_swap(before: NDArray[np.float32], after: NDArray[np.float32]) -> dict[str, float]:
    """Measure how far the unlearned weights are from those they replace; empty if one of them is all zeros."""
    if not before.any() or not after.any():
        return {}
    return {"relative_distance": relative_distance(after, before), "cosine": cosine(after, before)}
