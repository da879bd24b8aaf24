"""Takes up a federation where its last federator left off: claims it, and reads what is stored of its state."""

import secrets
from dataclasses import dataclass

from federator.clock import to_datetime
from federator.deciding.state import FederationState
from federator.plan import FederationPlan
from federator.rows import resumed_round
from foltr.failpoints import Failpoint, failpoint
from foltr.methods.registry import initial_weights, spec_of
from foltr.numerics.streams import first_model_rng
from foltr.protocol.fields import pack_vector
from foltr.protocol.trainings import NeuralRankerSpec
from storage.arrivals import load_clients
from storage.database import Database
from storage.erasure.erasures import forgotten_pseudonyms
from storage.federations import claim_federation, create_federation, get_federation
from storage.models import latest_model, newest_unlearned
from storage.records import ModelRow, NewEvent
from storage.rounds import latest_round, load_open_round, open_round


@dataclass(frozen=True)
class Claim:
    """The right to write for a federation.

    Attributes:
        epoch: it fences whoever claimed before.
        aggregation_seed: what the aggregation of a round draws from (`federator.closing.stored_rules.round_rng`).
    """

    epoch: int
    aggregation_seed: bytes
    state: FederationState


async def claim(db: Database, plan: FederationPlan, now: float) -> Claim:
    """Claim the federation, which is created if there is none; its state knows its members, and no round yet."""
    name = plan.federation
    await _create(db, plan, now)
    epoch = await claim_federation(db, name)
    failpoint(Failpoint.FEDERATION_CLAIMED)
    federation = await get_federation(db, name)
    if (
        federation is None
        or federation.selection_seed is None
        or federation.aggregation_seed is None
        or federation.pseudonym_key is None
    ):
        raise RuntimeError(f"federation {name!r} is gone from {db.location}")
    state = FederationState(plan)
    state.selection_seed, state.operator_nonce = federation.selection_seed, federation.operator_nonce
    state.members.restore(await load_clients(db, name), federation.roster)
    state.members.restore_forgotten(federation.pseudonym_key, await forgotten_pseudonyms(db, name))
    return Claim(epoch, federation.aggregation_seed, state)


async def _create(db: Database, plan: FederationPlan, now: float) -> None:
    weights = initial_weights(plan.training, plan.ranker, first_model_rng(plan.seed))
    await create_federation(
        db,
        plan.federation,
        plan.n_features,
        plan.ranker.kind,
        pack_vector(weights),
        to_datetime(now),
        selection_seed=secrets.token_bytes(32),
        aggregation_seed=secrets.token_bytes(32),
        pseudonym_key=secrets.token_bytes(32),
        method=spec_of(plan.training).name,
        hidden=plan.ranker.hidden if isinstance(plan.ranker, NeuralRankerSpec) else None,
    )


async def resume_rounds(db: Database, claimed: Claim, now: float) -> tuple[ModelRow, list[NewEvent]]:
    """Go on with the open round, or open the next one; returns the newest model, and what is to be noted."""
    state = claimed.state
    model = await latest_model(db, state.federation)
    if model is None:
        raise RuntimeError(f"federation {state.federation!r} has no model in {db.location}")
    state.model_version = model.version
    state.oldest_base = await newest_unlearned(db, state.federation)
    events = [NewEvent(to_datetime(now), "federator_started", detail=f"writer epoch {claimed.epoch}")]
    stored = await load_open_round(db, state.federation)
    if stored is None:
        await _start_round(db, claimed, now)
        return model, events
    row, contributions = stored
    state.round = resumed_round(row, dict(contributions), now, state.plan.resume_grace_s)
    detail = f"{len(contributions)} updates"
    events.append(NewEvent(to_datetime(now), "round_resumed", round=row.number, detail=detail))
    return model, events


async def _start_round(db: Database, claimed: Claim, now: float) -> None:
    """Open the first round, or the one after the last; or show the last one where there is to be no other."""
    state = claimed.state
    newest = await latest_round(db, state.federation)
    if newest is not None and state.is_last(newest.number):
        # Perhaps the last federator died before the broker had the last model: it is announced again.
        state.ended = resumed_round(newest, {}, now, state.plan.resume_grace_s)
        return
    number = 1 if newest is None else newest.number + 1
    opened, opening = state.open_round(number, state.model_version, now)
    await open_round(db, state.federation, claimed.epoch, opening)
    state.round = opened
