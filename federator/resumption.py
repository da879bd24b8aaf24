"""Continues a federation from its last federator: claims it, and loads its stored state."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from foltr.core.errors import MessageError, SettingsError
from foltr.core.methods.registry import initial_weights, spec_of
from foltr.core.numerics.streams import first_model_rng
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.operator_keys import trusted_in_storage
from foltr.core.protocol.policies import NEW_POLICY
from foltr.core.protocol.signed_policies import SignedPolicy, read_policy
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.trainings import NeuralRankerSpec
from foltr.federator.anchor import as_anchor, resume_anchor
from foltr.federator.clock import to_datetime
from foltr.federator.closing.stored_rules import training_text
from foltr.federator.deciding.state import FederationState, KeyReplacedError
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RecordedUpdate
from foltr.federator.rows import resumed_round
from foltr.federator.secure_terms import SecureTerms
from foltr.federator.store import FederationStore
from foltr.storage.records import ModelRow, NewEvent, RoundRow
from foltr.storage.sum_records import PolicyRecord

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ClaimedFederation:
    """The right to write for a federation.

    Attributes:
        aggregation_seed: the random source of rounds' aggregation (`foltr.federator.closing.stored_rules.round_rng`).
        policies: the operator's, by their hashes; none in a trusted federation.
    """

    aggregation_seed: bytes
    state: FederationState
    policies: Mapping[bytes, SignedPolicy]


async def require_fit(store: FederationStore, plan: FederationPlan, key: SigningKey | None, now: float) -> None:
    """Check that a federator may continue the federation, before it takes over or changes anything.

    Args:
        key: the federator's.

    Raises:
        SettingsError: an existing federation has other settings, data keys, policies, or keys of its operator.
    """
    federation = await store.get_federation()
    if federation is None:
        return
    await store.require_keys()
    state = FederationState(plan)
    state.members.restore((), federation.roster)
    state.restore_orders(await store.standing_orders(state.members.roster_through))
    if state.has_replaced(key):
        raise KeyReplacedError(plan.federation)
    await _find_policies(store, plan)
    await create(store, plan, now)  # only compares


async def claim(store: FederationStore, plan: FederationPlan, now: float, newest_epoch: int = 0) -> ClaimedFederation:
    """Claim the federation, creating it if needed; its state knows its members, and no round yet.

    Args:
        newest_epoch: the claim is above it, even if the clock is behind.
    """
    await create(store, plan, now)
    await store.claim_federation(max(now, newest_epoch + 1.0))
    federation = await store.get_federation()
    if (
        federation is None
        or federation.selection_seed is None
        or federation.aggregation_seed is None
        or federation.pseudonym_key is None
    ):
        raise RuntimeError(f"federation {plan.federation!r} is gone from {store.location}")
    state = FederationState(plan)
    state.selection_seed = federation.selection_seed
    clients = await store.load_clients()
    state.members.restore(clients, federation.roster)
    if state.pace is not None:
        newest = await store.latest_round()
        state.resume_pace(clients, None if newest is None else newest.period_s, now)
        await store.forget_presence()
    state.restore_orders(await store.standing_orders(state.members.roster_through))
    state.members.restore_forgotten(federation.pseudonym_key, await store.forgotten_pseudonyms())
    policies = await adopt_policies(store, plan, now)
    state.policy = list(policies.values())[-1] if policies else None
    return ClaimedFederation(federation.aggregation_seed, state, policies)


async def create(store: FederationStore, plan: FederationPlan, now: float) -> None:
    """Create the federation if it does not exist. Raises SettingsError if the plan does not fit an existing one."""
    weights = initial_weights(plan.training, plan.ranker, first_model_rng(plan.seed))
    if plan.first_weights is not None:
        weights[: plan.ranker.n_weights] = unpack_vector(plan.first_weights)
    neural = plan.ranker if isinstance(plan.ranker, NeuralRankerSpec) else None
    await store.create_federation(
        plan.n_features,
        plan.ranker.kind,
        pack_vector(weights),
        to_datetime(now),
        selection_seed=secrets.token_bytes(32),
        aggregation_seed=secrets.token_bytes(32),
        pseudonym_key=secrets.token_bytes(32),
        method=spec_of(plan.training).name,
        hidden=None if neural is None else neural.hidden,
        activation=None if neural is None else neural.activation,
        privacy=plan.privacy,
        schema_hash=plan.schema_hash,
        first_model_is_chosen=plan.first_weights is not None,
    )


async def resume_rounds(
    store: FederationStore, claimed: ClaimedFederation, now: float, leader: str = ""
) -> tuple[ModelRow, list[NewEvent]]:
    """Continue the open round, or open the next one; return the newest model, and events to note.

    Args:
        leader: the name of the process that leads from now on; goes into the event of its start.
    """
    state = claimed.state
    model = await store.latest_model()
    if model is None:
        raise RuntimeError(f"federation {state.federation!r} has no model in {store.location}")
    state.model_version = model.version
    state.oldest_base, state.restored = await store.newest_unlearned(), await store.restored_versions()
    started = ", led by ".join(filter(None, (f"writer epoch {store.epoch}", leader)))
    events = [NewEvent(to_datetime(now), "federator_started", detail=started)]
    stored = await store.load_open_round()
    if stored is None:
        await _start_round(store, claimed, model, now)
    else:
        row, counting = stored
        terms = _terms_of(row, claimed)
        await resume_anchor(store, state, row, terms)
        contributions = RecordedUpdate.by_client(counting)
        state.round = resumed_round(row, contributions, now, state.plan.resume_grace_s, terms)
        detail = f"{len(contributions)} updates"
        events.append(NewEvent(to_datetime(now), "round_resumed", round=row.number, detail=detail))
    if state.round is not None:
        await store.note_training(state.round.number, training_text(state.plan.training))
    state.add_model_hashes(await store.model_hashes(state.oldest_known))
    return model, events


def compare_rounds(state: FederationState, announced: int, now: float) -> list[NewEvent]:
    """Report a database without the newest round that was announced: it was restored, or another one took its place.

    Args:
        announced: the number of that round; 0 if none is known.
    """
    shown = state.round or state.ended
    if shown is None or announced <= shown.number:
        return []
    detail = f"round {announced} was announced, and the newest round of the database is {shown.number}"
    log.error(EventKind.DATABASE_OLDER, detail=detail, hint="docs/runbook.md#database_older says what to do")
    return [NewEvent(to_datetime(now), EventKind.DATABASE_OLDER, detail, round=announced)]


def _terms_of(row: RoundRow, claimed: ClaimedFederation) -> SecureTerms | None:
    """The terms of a stored round's secure sum; None without one."""
    if row.policy_hash is None or row.clip_norm is None:
        return None
    secure = claimed.state.plan.secure
    if secure is None:
        raise RuntimeError(f"round {row.number} has a secure sum in a federation without")
    return secure.stored_terms(claimed.policies[row.policy_hash], row.clip_norm)


async def _start_round(store: FederationStore, claimed: ClaimedFederation, model: ModelRow, now: float) -> None:
    """Open the first round, or the one after the last; if the plan has no further round, show the last one."""
    state = claimed.state
    newest = await store.latest_round()
    terms = None if newest is None else _terms_of(newest, claimed)
    await resume_anchor(store, state, newest, terms)
    if newest is not None and state.is_last(newest.number):
        # Announce it again: the last federator may have died before the broker had the last model.
        state.ended = resumed_round(newest, {}, now, state.plan.resume_grace_s, terms)
        return
    number = 1 if newest is None else newest.number + 1
    state.anchor = as_anchor(state, state.anchor or model)
    opened, opening = state.open_round(number, state.model_version, now, state.anchor)
    await store.open_round(opening)
    state.round = opened


async def adopt_policies(store: FederationStore, plan: FederationPlan, now: float) -> dict[bytes, SignedPolicy]:
    """Return all policies by their hashes, the newest last; that of the plan is stored if it is newer than all.

    Raises:
        SettingsError: a stored policy is another operator's, or the newest one does not fit the plan.
    """
    policies, is_stored = await _find_policies(store, plan)
    if not is_stored:
        newest = policies[-1]
        await store.adopt_policy(PolicyRecord(newest.hash, newest.policy.version, newest.signed, to_datetime(now)))
    return {policy.hash: policy for policy in policies}


async def _find_policies(store: FederationStore, plan: FederationPlan) -> tuple[list[SignedPolicy], bool]:
    """Return all policies, the newest last, and whether that one is stored already; raises as `adopt_policies`."""
    if plan.secure is None:
        return [], True
    known = [_read(row, plan) for row in await store.load_policies()]
    newest, given = known[-1] if known else None, plan.secure.policy
    is_newer = newest is None or given.policy.version > newest.policy.version
    if is_newer:
        known.append(given)
    elif newest is not None and given.policy.version == newest.policy.version and given.hash != newest.hash:
        raise SettingsError(
            f"privacy: the credentials have another policy {given.policy.version} than federation "
            f"{plan.federation!r} knows; is the operator's folder restored? Make a newer one: {NEW_POLICY}"
        )
    plan.check_policy(known[-1].policy)
    return known, not is_newer


def _read(row: PolicyRecord, plan: FederationPlan) -> SignedPolicy:
    try:
        return read_policy(row.signed, trusted_in_storage(plan.enrolment_key or b""), plan.federation)
    except MessageError as error:
        raise SettingsError(
            f"enrolment_key: policy {row.version} stored for federation {plan.federation!r} was signed with another "
            "key. Give the federator the credentials of the operator who signed it"
        ) from error
