"""Rows of what was decided, and a round from its row, without a database."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from support.adaptive_memory import memory_of

from foltr.core.aggregation.client_records import ClientRecords
from foltr.core.erasure.states import Requester
from foltr.core.errors import SettingsError
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.states import JobState, Pacing, RoundState, Strategy
from foltr.federator.deciding.decisions import Decisions, PendingErasure
from foltr.federator.round import RecordedUpdate, SelectedClients
from foltr.federator.rows import batch_of, resumed_round, swap_of
from foltr.storage.erasure_records import UnlearningJobRow
from foltr.storage.records import Batch, MembershipChange, ModelRow, NewEvent, QuarantineChange, RoundOpening, RoundRow

AT = datetime(2026, 1, 1, tzinfo=UTC)
ROW = RoundRow(
    "mail", 4, RoundState.AGGREGATING, base_version=3, min_clients=2, max_clients=9, min_time_s=1.0, max_time_s=60.0,
    opened_at=AT, closes_at=AT + timedelta(seconds=60), closed_at=None, reason=None, n_updates=None,
    n_interactions=None, model_version=None, pacing=Pacing.BUFFERED, staleness_limit=5, staleness_exponent=0.5,
    selection_seed=b"s" * 32, selection_cutoff=b"c" * 8, n_selected=3, n_eligible=7, aggregation="trimmed-mean",
    byzantine=2.0, aggregation_parameters="{}", aggregation_fallback="abandon",
)  # fmt: skip
JOB = UnlearningJobRow(
    "mail", 2, JobState.RUNNING, strategy=Strategy.ROLLBACK, interval=10, local_interactions=3, created_at=AT,
    start_version=1, start_round=2, step=1, n_steps=1, last_round=3, weights=pack_vector([3.0, 4.0]), coverage_sum=1.0,
    optimizer_state=b"optimiser", defence_state=memory_of("alice", n_rounds=2), reason=None, closed_at=None,
    model_version=None, figures="{}",
)  # fmt: skip
BEFORE = ModelRow("mail", 6, 5, 9, 2, pack_vector([6.0, 8.0]), bytes(16), AT, None)


def test_a_stored_round_goes_on_as_it_was():
    """Its policy, who contributed and whom it asks; its deadline as `Round.resume` has it."""
    found = resumed_round(ROW, {"a": RecordedUpdate("0" * 32, 7)}, AT.timestamp() + 59.0, 5.0)
    policy = found.policy
    assert (found.number, found.base_version, found.state) == (4, 3, RoundState.AGGREGATING)
    assert (policy.min_clients, policy.max_clients, policy.min_time_s, policy.max_time_s) == (2, 9, 1.0, 60.0)
    assert (policy.pacing, policy.staleness_limit, policy.staleness_exponent) == (Pacing.BUFFERED, 5, 0.5)
    assert (policy.rule.rule, policy.rule.byzantine) == ("trimmed-mean", 2.0)
    assert found.contributions == {"a": RecordedUpdate("0" * 32, 7)}
    assert found.selection == SelectedClients(b"s" * 32, b"c" * 8, 3, 7)
    assert found.opened_at == AT.timestamp()
    assert found.closes_at == AT.timestamp() + 64.0


def test_a_rule_of_another_program_is_refused():
    """A round is not ended by another rule than it was opened with."""
    with pytest.raises(SettingsError, match="newer-rule"):
        resumed_round(replace(ROW, aggregation="newer-rule"), {}, AT.timestamp(), 5.0)


def test_a_batch_has_everything_that_was_decided():
    """A kind of row that were left out here would be told to a device and never stored."""
    decided = Decisions(
        updates=[object()],
        membership=[MembershipChange("a", "joined", AT)],
        withdrawn=[(1, "a")],
        roster=(1, b"roster"),
        deadline=object(),
        quarantines=[QuarantineChange("a", AT, "why")],
        orders=[object()],
        policy=object(),
        allowed_reset=object(),
    )
    decided.note(NewEvent(AT, "late"))
    batch = batch_of(decided, 4, (3, AT))
    decided_fields = {each.name for each in fields(Batch)} - {"stop_collecting", "published", "batch_id"}
    assert {name: getattr(batch, name) for name in decided_fields} == {
        name: getattr(decided, name) for name in decided_fields
    }
    assert all(getattr(batch, name) for name in decided_fields)
    assert (batch.stop_collecting, batch.published) == (4, (3, AT))


def test_who_is_excluded_and_forgotten_at_once_is_withdrawn_with_the_batch():
    """Or the batch would leave an excluded client's update in the open round; an erasure alone takes its own out."""
    decided = Decisions(
        membership=[MembershipChange("revoked", "revoked", AT)],
        quarantines=[QuarantineChange("quarantined", AT, "why"), QuarantineChange("let out", AT, None)],
    )
    for name in ("revoked", "quarantined", "let out", "forgotten"):
        decided.withdrawn.append((1, name))
        decided.erasures.append(PendingErasure(name, "0" * 32, 0.0, Requester.OPERATOR))
    assert batch_of(decided, None, None).withdrawn == [(1, "revoked"), (1, "quarantined")]


def test_a_swap_abandons_the_open_round_for_the_next():
    """The job's weights and states take over under the next version; after the last round it abandons none."""
    opening = RoundOpening(11, 7, 1, 2, 0.0, 60.0, AT, AT)
    swap = swap_of(JOB, BEFORE, AT, 10, opening)
    assert (swap.version, swap.completed_at, swap.abandons, swap.next_opening) == (7, AT, 10, opening)
    assert (swap.optimizer_state, swap.defence_state) == (b"optimiser", None)
    assert swap.figures == pytest.approx({"relative_distance": np.hypot(3, 4) / np.hypot(6, 8), "cosine": 1.0})
    assert swap.events == [NewEvent(AT, "unlearning_done", "job 2: model 7 replaces model 6", round=10)]
    last = swap_of(JOB, BEFORE, AT, None, None)
    assert (last.abandons, last.next_opening, last.events[0].round) == (None, None, None)


def test_a_swap_keeps_what_rounds_have_against_clients():
    """Of the job only the direction of its progress is kept: by what its steps measured nobody is judged afterwards."""
    rounds = memory_of("alice", "bob", n_rounds=5)
    swap = swap_of(JOB, replace(BEFORE, defence_state=rounds), AT, None, None)
    before, after = ClientRecords.from_bytes(rounds, 3), ClientRecords.from_bytes(swap.defence_state, 3)
    assert (after.client_ids, after.n_rounds, after.progress.tolist()) == (("alice", "bob"), 5, [1.0] * 3)
    assert after.clients.tobytes() == before.clients.tobytes()
