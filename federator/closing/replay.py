"""Aggregates stored rounds again, to verify that their models follow from stored data.

Nothing is stored. If data is missing a `DataError` says what and why: that is not a difference between models. An
`ErasedSinceError` says that it went with erased clients, which is no fault.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.client_records import with_progress_of
from foltr.core.aggregation.reference_clients import after_suspects_alone
from foltr.core.errors import DataError, SettingsError
from foltr.core.methods.base import Aggregation, Memory, NextModel
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.policies import Policy
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.states import RoundState
from foltr.federator.closing.collected_updates import Recipe, Recipes, RoundInputs, collect, collect_sums
from foltr.federator.closing.stored_rules import stored_rule
from foltr.federator.secure_terms import SecureTerms
from foltr.storage.cipher import require_keys
from foltr.storage.database import Database
from foltr.storage.defence import kept_defence
from foltr.storage.erasure.erasures import count_erased
from foltr.storage.errors import MissingKeyError
from foltr.storage.evaluations import count_suspects_alone
from foltr.storage.models import get_model, newest_unlearned, restored_versions
from foltr.storage.policies import load_policies
from foltr.storage.queries import list_contributions
from foltr.storage.records import ModelRow, RoundRow, UpdateRow
from foltr.storage.rounds import count_updates, find_round, first_round_on, stream_completed, stream_updates
from foltr.storage.sums import load_answers, load_sums

OnRound = Callable[[int], None]
"""Called with the number of each round that was replayed."""


class ErasedSinceError(DataError):
    """What a replay needs is gone with erased clients: the model is neither confirmed nor another one."""


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """A round's stored model and the replayed one, (d,) float32 each.

    Attributes:
        differs: texts naming what is not the same bit for bit; empty if everything is.
    """

    round: RoundRow
    stored: NDArray[np.float32]
    made: NDArray[np.float32]
    differs: tuple[str, ...]


async def replay_round(db: Database, recipes: Recipes, number: int, on_round: OnRound = lambda _: None) -> ReplayResult:
    """Aggregate a round from stored data as the federator did; for a secure sum this verifies helpers' signatures.

    Raises:
        SettingsError: the round does not exist.
        ErasedSinceError: some of its data was erased with clients, and nothing else of it is missing.
        DataError: it made no model, or some of its data is no longer stored.
    """
    name = recipes.federation
    row = await find_round(db, name, number)
    if row is None:
        raise SettingsError(f"federation {name!r} has no round {number}; see: foltr rounds list")
    if row.state is not RoundState.COMPLETED or row.model_version is None:
        raise DataError(f"round {number} is {row.state} and has made no model; see: foltr rounds list")
    recipe = recipes.of(number)
    base, stored = await _model(db, recipe, row.base_version), await _model(db, recipe, row.model_version)
    withdrawn = [_withdrawn(model) for model in (base, stored) if model.withdrawn_at is not None]
    erased, lost = await (_missing_updates(db, row) if row.policy_hash is None else _missing_sums(db, row))
    if withdrawn or erased or lost:
        raise _refusal(f"round {number} cannot be replayed: ", [*withdrawn, *erased], lost)
    try:
        memory = Memory(base.optimizer_state, await _remembered(db, recipes, row, on_round))
        made = (await _aggregation(db, recipe, row)).finish(unpack_vector(base.weights), memory)
    except MissingKeyError as error:
        raise await _erased_or_elsewhere(db, row, error) from error
    on_round(number)
    return ReplayResult(row, unpack_vector(stored.weights), made.weights, tuple(_differences(row, stored, made)))


async def _aggregation(db: Database, recipe: Recipe, row: RoundRow) -> Aggregation:
    """Return the aggregation that a round's updates, or its sums, are collected in."""
    if row.policy_hash is None or row.clip_norm is None:
        return await collect(_updates(db, recipe, row), recipe, RoundInputs.of(row))
    policies = {policy.hash: policy.signed for policy in await load_policies(db, row.federation)}
    terms = SecureTerms(_policy(policies[row.policy_hash], row), row.clip_norm)
    sums = await load_sums(db, row.federation, row.number)
    answers = await load_answers(db, row.federation, row.number)
    return collect_sums(sums, answers, recipe, row.number, stored_rule(row), terms).aggregation


def _policy(signed: bytes, row: RoundRow) -> SignedPolicy:
    """Return a stored policy, which the federator has checked; the round names it by its hash."""
    policy = SignedPolicy(open_envelope(signed).read(Policy), signed)
    if policy.hash != row.policy_hash:
        raise DataError(f"the policy that round {row.number} was under is stored damaged")
    return policy


def _refusal(what: str, erased: list[str], lost: list[str]) -> DataError:
    """Return the error for data that is missing.

    Args:
        erased: what went with clients that were erased.
        lost: what is missing for other reasons.
    """
    kind = DataError if lost else ErasedSinceError
    return kind(what + "; ".join([*erased, *lost]))


async def _erased_or_elsewhere(db: Database, row: RoundRow, error: MissingKeyError) -> DataError:
    """Return the error for a missing data key: erased after the backup that was restored, or not in this folder."""
    try:
        await require_keys(db, row.federation)
    except SettingsError:
        return error
    rows = await list_contributions(db, row.federation, round_number=row.number)
    n_gone = sum(each.body == "unreadable" for each in rows)
    why = f"data keys of erased clients were destroyed: of {n_gone} of its {row.n_updates} updates"
    return ErasedSinceError(f"round {row.number} cannot be replayed: {why}; {error}")


async def _missing_sums(db: Database, row: RoundRow) -> tuple[list[str], list[str]]:
    """Describe the missing sums of a completed round as `_missing_updates` does."""
    sums = await load_sums(db, row.federation, row.number)
    gone = [str(each.cohort) for each in sums if each.masked_sum is None]
    return [f"gone, because erased clients were in it: the sum of cohort {', '.join(gone)}"] if gone else [], []


async def _remembered(db: Database, recipes: Recipes, row: RoundRow, on_round: OnRound) -> bytes | None:
    """Return what the adaptive rule remembered of clients before a round; None for other rules.

    It is stored with the newest model, and with models from unlearning. So all rounds since the last of these, or since
    the first model, are replayed. When models were rolled back, clients' updates stayed evidence, and the progress went
    back to that of the restored model.
    """
    if not _is_remembering(row):
        return None
    version = await newest_unlearned(db, recipes.federation, row.base_version)
    try:
        defence = await kept_defence(db, recipes.federation, version)
    except DataError as error:
        raise _forgotten(row, [str(error)], []) from error
    first = await first_round_on(db, recipes.federation, version) or row.number
    restored = {each.version: each.restored_version for each in await restored_versions(db, recipes.federation)}
    paths = {version: defence}
    async for before in stream_completed(db, recipes.federation, first, row.number - 1):
        # Models are rolled back under any rule, and another rule's memory goes through all of them.
        defence = _on_path(defence, before.base_version, restored, paths)
        if _is_remembering(before):
            defence = await _with_absences(db, before, defence)
            erased, lost = await _missing_updates(db, before)
            if erased or lost:
                raise _forgotten(row, *([f"of round {before.number} {why}" for why in one] for one in (erased, lost)))
            recipe = recipes.of(before.number)
            aggregation = await collect(_updates(db, recipe, before), recipe, RoundInputs.of(before))
            # The memory follows from the updates alone, not from the model they are added to.
            made = aggregation.finish(np.zeros(recipe.n_values, np.float32), Memory(None, defence))
            defence = made.memory.defence
        paths[before.model_version or 0] = defence
        on_round(before.number)
    return await _with_absences(db, row, _on_path(defence, row.base_version, restored, paths))


async def _with_absences(db: Database, row: RoundRow, defence: bytes | None) -> bytes | None:
    """Return the memory as a round ends, counting a long absence of everyone but suspects."""
    return after_suspects_alone(defence, await count_suspects_alone(db, row.federation, row.number))


def _on_path(
    defence: bytes | None, version: int, restored: Mapping[int, int], paths: dict[int, bytes | None]
) -> bytes | None:
    """Return the memory before a round on a model, with the progress of the anchor's path if that was restored.

    Args:
        restored: by restored version, the version whose weights it has.
        paths: the memory after each model so far; the restored one is added.
    """
    if defence is not None and version in restored and version not in paths:
        paths[version] = with_progress_of(defence, paths.get(restored[version]))
        return paths[version]
    return defence


def _forgotten(row: RoundRow, erased: list[str], lost: list[str]) -> DataError:
    what = (
        f"round {row.number} cannot be aggregated: the adaptive rule used all rounds before it, and these would have "
    )
    return _refusal(f"{what}to be replayed; ", erased, lost)


def _is_remembering(row: RoundRow) -> bool:
    return stored_rule(row).rule == "adaptive"


def _updates(db: Database, recipe: Recipe, row: RoundRow) -> AsyncIterator[UpdateRow]:
    return stream_updates(db, recipe.federation, row.number, recipe.n_at_once)


async def _missing_updates(db: Database, row: RoundRow) -> tuple[list[str], list[str]]:
    """Describe the missing updates of a completed round: those erased with clients, and those that are lost."""
    n_then = row.n_updates or 0
    n_rows, n_bodies = await count_updates(db, row.federation, row.number)
    erased, lost, n_gone = [], [], n_then - n_rows
    if n_gone > 0:
        if await count_erased(db, row.federation, row.number) >= n_gone:
            erased.append(f"gone, because clients were erased: {n_gone} of its {n_then} updates")
        else:
            lost.append(f"gone, and no erasure says why: {n_gone} of its {n_then} updates")
    if n_bodies < n_rows:
        lost.append(f"gone, because the round was thinned: {n_rows - n_bodies} of its {n_then} updates")
    return erased, lost


async def _model(db: Database, recipe: Recipe, version: int) -> ModelRow:
    row = await get_model(db, recipe.federation, version)
    if row is None:
        raise DataError(f"model {version} is not stored; restore a backup of the database")
    if row.n_values != recipe.n_values:
        raise DataError(
            f"model {version} has {row.n_values} values, and with the settings that are stored of the method it would "
            f"have {recipe.n_values}: they were changed in the database"
        )
    return row


def _withdrawn(model: ModelRow) -> str:
    return f"gone, because an erased client was in it: model {model.version}"


def _differences(row: RoundRow, stored: ModelRow, made: NextModel) -> list[str]:
    found = []
    if pack_vector(made.weights) != stored.weights:
        before = unpack_vector(stored.weights)
        n_other = int((made.weights.view(np.uint32) != before.view(np.uint32)).sum())
        largest = float(np.abs(made.weights.astype(np.float64) - before.astype(np.float64)).max())
        found.append(f"{n_other} of {len(before)} weights, by at most {largest:.3g}")
    if made.memory.optimiser != stored.optimizer_state:
        found.append("the state of the optimiser")
    if _is_remembering(row) and stored.defence_state not in (None, made.memory.defence):
        found.append("what the rule remembers of clients")
    return found
