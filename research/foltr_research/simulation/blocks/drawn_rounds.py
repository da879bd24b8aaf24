"""Many rounds of a few clients each in one call: PDGD learning and the mean of the updates in machine code.

In a round of ten clients the calls around the kernels of `foltr_research.simulation.blocks.drawn_rankings` take longer
than the kernels. If no model between rounds is needed, as in retraining and unlearning, one kernel makes successive
rounds, with the same random numbers and results bit-equal to single rounds.

Shapes: n clients; R rounds; B interactions at most; d features.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.learning.linear import score
from foltr.core.numerics.compiled import compiled
from foltr_research.simulation.blocks.drawn_rankings import (
    Documents,
    QueryPool,
    Step,
    User,
    Users,
    documents_of,
    local_weights,
    log_times_of,
    pdgd_interaction,
)

# 2 MB of draws. More would leave the processor's second-level cache before the kernel reads them.
DRAWS_IN_A_ROW = 2**18
_LARGEST = float(np.finfo(np.float32).max)
_AS_IT_IS = -1.0


class RoundsInARow(NamedTuple):
    """The results of rounds made in one call.

    Attributes:
        models: (R, d) float32, after each round.
        updates: (R, n, d) float32, as averaged.
        ndcg: (R, n, B) float64 of each list shown, as in `LearnedBlock` for one round.
        reciprocal_ranks: (R, n, B) float64 likewise.
        counts: (R, n) int64, interactions of each client.
    """

    models: NDArray[np.float32]
    updates: NDArray[np.float32]
    ndcg: NDArray[np.float64]
    reciprocal_ranks: NDArray[np.float64]
    counts: NDArray[np.int64]


def pdgd_rounds(
    pool: QueryPool,
    base: NDArray[np.float32],
    picks: NDArray[np.int64],
    users: Users,
    device_rngs: Sequence[np.random.Generator],
    step: Step,
    lengths: NDArray[np.float64] | None = None,
) -> RoundsInARow:
    """Let clients learn in successive rounds, each from the previous round's mean (FPDGD, Algorithm 2).

    Args:
        pool: of d features.
        base: (d,) the first round's model.
        picks: (n, R, B) query indices in the order issued; -1 for no interaction.
        users: of n clients and R * B interactions.
        device_rngs: n generators, each advanced by one exponential draw per document of its client's queries.
        lengths: (R, n) L2 norms that updates are scaled to before averaging, as by
            `foltr.core.unlearning.calibration.calibrated`; None does not scale.

    Raises:
        DataError: as `pdgd_block`, or a model that does not fit float32.
    """
    n_clients, n_rounds, most = picks.shape
    in_order = picks.reshape(n_clients, n_rounds * most)
    local_weights(pool, base.astype(np.float64), in_order, users, pool.dataset.n_features)
    log_times, begins = log_times_of(pool, in_order, device_rngs)
    made = RoundsInARow(
        np.empty((n_rounds, len(base)), np.float32),
        np.empty((n_rounds, n_clients, len(base)), np.float32),
        np.full((n_rounds, n_clients, most), np.nan),
        np.full((n_rounds, n_clients, most), np.nan),
        (picks >= 0).sum(axis=2).T,
    )
    _rounds(
        pool.documents,
        picks,
        Users(users.tables, users.models.reshape(picks.shape), users.draws.reshape(*picks.shape, -1)),
        (log_times, begins.reshape(picks.shape)),
        step,
        base,
        made,
        np.full((n_rounds, n_clients), _AS_IT_IS) if lengths is None else lengths,
    )
    return made


@compiled
def _rounds(
    documents: Documents,
    picks: NDArray[np.int64],
    users: Users,
    times: tuple[NDArray[np.float64], NDArray[np.int64]],
    step: Step,
    first: NDArray[np.float32],
    made: RoundsInARow,
    lengths: NDArray[np.float64],
) -> None:
    """The kernel of `pdgd_rounds`.

    Args:
        picks: (n, R, B); models and draws of ``users`` likewise.
        times: of `log_times_of`, with (n, R, B) begins.
        first: (d,) the first round's model.
        made: written to.
        lengths: (R, n); `_AS_IT_IS` for an update that is not scaled.
    """
    log_times, begins = times
    following = made.models
    n_values = first.shape[0]
    base, learned, total, scratch = np.empty(n_values), np.empty(n_values), np.empty(n_values), np.empty(n_values)
    largest = np.empty(1, np.float32)
    for number in range(picks.shape[1]):
        base[:] = first if number == 0 else following[number - 1]
        total[:] = 0.0
        n_all = 0.0
        for client in range(picks.shape[0]):
            learned[:] = base
            n_interactions = 0.0
            for i in range(picks.shape[2]):
                query = picks[client, number, i]
                if query >= 0:
                    n_interactions += 1.0
                    scores = score(learned, documents_of(documents, query))
                    theirs = log_times[begins[client, number, i] :]
                    user = User(users.tables, users.models[client, number, i], users.draws[client, number, i])
                    made.ndcg[number, client, i], made.reciprocal_ranks[number, client, i] = pdgd_interaction(
                        documents, query, scores, theirs, user, step, base, learned
                    )
            n_all += n_interactions
            update = made.updates[number, client]
            for j in range(n_values):
                update[j] = np.float32(learned[j] - base[j])
            _largest_magnitude(update.view(np.int32), largest.view(np.int32))
            if not math.isfinite(largest[0]):
                raise DataError("an update contains a number that is not finite")
            length = lengths[number, client]
            if length != _AS_IT_IS:
                if not (math.isfinite(length) and length >= 0.0):
                    raise DataError("a stored update has no length, or one that is negative")
                _calibrate(update, np.float64(largest[0]), length, scratch)
            for j in range(n_values):
                total[j] += np.float64(update[j]) * n_interactions
        _move(following[number], base, total, n_all)


@compiled
def _largest_magnitude(bits: NDArray[np.int32], largest: NDArray[np.int32]) -> None:
    """Write the largest absolute value of float32 numbers; not finite if any number is not.

    The bits without the sign order like the values, with infinity and NaN above all. Processors take the maximum of
    many integers at a time, which the rules for NaN forbid for floats.

    Args:
        bits: (d,) the numbers.
        largest: (1,) the result's bits, written to.
    """
    highest = 0
    for j in range(bits.shape[0]):
        highest = max(highest, bits[j] & 0x7FFFFFFF)
    largest[0] = highest


@compiled
def _calibrate(update: NDArray[np.float32], largest: np.float64, length: float, direction: NDArray[np.float64]) -> None:
    """Scale an update (d,) to a length in place, as `foltr.core.unlearning.calibration.calibrated` does.

    Args:
        largest: of the update's absolute values.
        direction: (d,), written to.
    """
    if largest == 0.0:
        return
    for j in range(update.shape[0]):
        direction[j] = np.float64(update[j]) / largest
    scale = length / math.sqrt(np.dot(direction, direction))
    for j in range(update.shape[0]):
        update[j] = np.float32(direction[j] * scale)


@compiled
def _move(
    model: NDArray[np.float32], base: NDArray[np.float64], total: NDArray[np.float64], n_interactions: float
) -> None:
    """Write the base plus the mean to the model, as `RunningMean.apply_to` does."""
    if n_interactions == 0.0:
        raise DataError("the weights of the updates add up to zero: there is nothing to average")
    for j in range(model.shape[0]):
        moved = base[j] + total[j] / n_interactions
        if not abs(moved) <= _LARGEST:
            raise DataError("the new model does not fit float32: the updates are too large")
        model[j] = np.float32(moved)
