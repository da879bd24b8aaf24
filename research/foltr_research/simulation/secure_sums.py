"""Secure sums in a simulation: the arithmetic of clients and helpers without the masks, which cancel anyway.

Clients take turns, each update is clipped and put on the grid, helpers' noise is added to the sum of each cohort, and a
sum that is too long is discarded. Norm proofs are not computed, either: clients within the bound pass, the others are
removed, and a client has at most one vote of each kind. All random draws follow from the run's seed, so nothing is
protected here.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.round_aggregation import TooFewUpdatesError
from foltr.core.aggregation.vote_result import RoundTally
from foltr.core.learning.comparison import Opinion
from foltr.core.methods.base import NO_MEMORY, Memory, NextModel
from foltr.core.methods.registry import Ranker, body_spec, usual_clip_norm
from foltr.core.protocol.policies import cohort_of, is_turn_of
from foltr.core.protocol.trainings import Training
from foltr.core.protocol.updates import UpdateBody
from foltr.core.secure.accounting import (
    N_VOTES,
    check_masks,
    default_vote_weight,
    least_scale,
    least_variance,
    squared_sensitivity,
)
from foltr.core.secure.coins import Entropy, seeded_entropy
from foltr.core.secure.encoding import bound_for, decode_mean, encode_l1, encode_l2
from foltr.core.secure.field import from_signed
from foltr.core.secure.message_proof import MessageShape
from foltr.core.secure.noise import draw_gaussian, draw_laplace
from foltr.core.secure.norm_proof import is_disagreement, proof_shape
from foltr.core.secure.plan import NormProof, period_for
from foltr.core.secure.plausibility import is_plausible
from foltr_research.simulation.config import MechanismOfRun, SimulationConfig, cohorts_of
from foltr_research.simulation.correlated_noise import CorrelatedNoise, Correlation, best_correlation
from foltr_research.simulation.defence_record import NormProofs
from foltr_research.simulation.kept_updates import KeptUpdates, UpdateReceiver

Integers = NDArray[np.int64]
# Limit of a hostile client's numbers: no sum overflows, but each makes a sum implausible.
_LARGEST: Final = 2.0**40
_BYTES_OF_WORD: Final = 8
# How fast C follows a quantile: by at most a fifth a round (Andrew et al. 2021, eta_C).
_CLIP_STEP: Final = 0.2
# Rounding may make a float32 vector of norm C this much longer.
_SLACK: Final = 1e-6


@dataclass(frozen=True)
class SecureSums:
    """The settings of a run's secure sums: the parts of a policy that apply without real helpers.

    Attributes:
        mechanism: the noise and its clip; `none` and `correlated` clip as `gaussian` does.
        bound: C_int.
        noise: the variance of `gaussian` and of z of `correlated`, the scale of `gamma`; 0 of `none`.
        clip_norm: C.
        helpers: their number; each adds noise.
        cohorts: G.
        period: b.
        seed: of the run.
        norm_proof: whether devices prove their norms.
        vote_weight: v; 0 without votes.
        norm_weight: what a client whose norm is within C adds to the last entry; 0 if C stays.
        clip_quantile: the quantile of norms that C follows; None: it stays.
        correlation: of `correlated`, else None.
        sequences: the correlated noise of each helper in each cohort's sums.
    """

    mechanism: MechanismOfRun
    bound: int
    noise: int
    clip_norm: float
    helpers: int
    cohorts: int
    period: int
    seed: int
    norm_proof: NormProof
    vote_weight: int = 0
    norm_weight: int = 0
    clip_quantile: float | None = None
    correlation: Correlation | None = None
    sequences: dict[tuple[int, int], CorrelatedNoise] = field(default_factory=dict, compare=False)

    @property
    def n_votes(self) -> int:
        """The number of vote entries after an update in a sum."""
        return N_VOTES if self.vote_weight else 0

    @property
    def n_beside(self) -> int:
        """The number of entries after an update in a sum: votes, and whether its norm was within C."""
        return self.n_votes + (self.clip_quantile is not None)

    @property
    def policy_hash(self) -> bytes:
        """A substitute for a policy's hash, which turns and cohorts are drawn from."""
        return hashlib.sha256(b"simulated policy %d" % self.seed).digest()

    def bytes_of_vector(self, dim: int) -> int:
        """Return the length of a masked update of ``dim`` numbers, with its proof."""
        if self.norm_proof == "none":
            return _BYTES_OF_WORD * dim
        shape = MessageShape(proof_shape(dim, self.bound), self.vote_weight, 0)
        return _BYTES_OF_WORD * shape.n_values

    def first_turn(self, name: str) -> int:
        """Return a client's first round, 1 to b. Each b-th round from there is its turn, too."""
        rounds = range(1, self.period + 1)
        return next(number for number in rounds if is_turn_of(self.policy_hash, self.period, number, name))

    def cohorts_of_round(self, number: int, names: Collection[str]) -> Integers:
        """Return (n,) the cohort of each client."""
        return np.array([cohort_of(self.policy_hash, self.cohorts, number, name) for name in names], np.int64)

    def encode(self, update: NDArray[np.float32], entropy: Entropy) -> Integers:
        """Return an honest client's contribution to the sum."""
        encode = encode_l1 if self.mechanism == "gamma" else encode_l2
        return encode(update, self.clip_norm, self.bound, entropy)

    def encode_hostile(self, update: NDArray[np.float32], entropy: Entropy) -> Integers:
        """Return a hostile client's contribution: its whole update.

        Values that are not finite cannot be put on a grid, so they become zeros. With norm proofs an update of norm C
        is rounded so that it passes. Proofs are of the L2 norm, also for a mechanism that clips in L1. If C follows
        the honest norms, attackers know it and shorten their updates to it.
        """
        if not np.isfinite(update).all() or (self.norm_proof == "l2" and self.norm_weight):
            return self.encode(update, entropy)
        within = math.sqrt(np.square(update, dtype=np.float64).sum()) <= self.clip_norm * (1.0 + _SLACK)
        if self.norm_proof == "l2" and within:
            return encode_l2(update, self.clip_norm, self.bound, entropy)
        steps = update.astype(np.float64) * (self.bound / self.clip_norm)
        return np.rint(np.clip(steps, -_LARGEST, _LARGEST)).astype(np.int64)

    def is_proved(self, encoded: Integers) -> bool:
        """Whether these integers have a valid norm proof. Without proofs all pass."""
        return self.norm_proof == "none" or int(encoded @ encoded) <= self.bound**2

    def draw_noise(self, size: int, entropy: Entropy) -> Integers:
        """Return (size,) one helper's independent noise."""
        if self.mechanism == "none":
            return np.zeros(size, np.int64)
        draw = draw_laplace if self.mechanism == "gamma" else draw_gaussian
        return draw(size, self.noise, entropy)

    def noise_in(self, number: int, cohort: int, helper: int, size: int, entropy: Entropy) -> Integers:
        """Return (size,) one helper's noise in the sum of a cohort in a round. Votes have independent noise."""
        if self.correlation is None:
            return self.draw_noise(size, entropy)
        seed = b"correlated %d %d %d" % (self.seed, cohort, helper)
        new = CorrelatedNoise(seed, self.correlation.band, self.noise)
        sequence = self.sequences.setdefault((cohort, helper), new)
        correlated = sequence.of_round(number, size - self.n_beside)
        return np.concatenate([correlated, self.draw_noise(self.n_beside, entropy)])

    def encode_vote(self, vote: Opinion) -> Integers:
        """Return (n_votes,) a vote's contribution to the sum: worse, better."""
        worse, better = vote is Opinion.WORSE, vote is Opinion.BETTER
        return np.array([worse, better][: self.n_votes], np.int64) * self.vote_weight

    def encode_beside(self, update: NDArray[np.float32], vote: Opinion, *, hostile: bool) -> Integers:
        """Return (n_beside,) what follows an update: its vote, and whether its norm is within C.

        Hostile clients deny it, so that C grows.
        """
        beside = np.zeros(self.n_beside, np.int64)
        beside[: self.n_votes] = self.encode_vote(vote)
        if self.norm_weight and not hostile:
            length = math.sqrt(np.square(update, dtype=np.float64).sum())
            beside[-1] = self.norm_weight * (length <= self.clip_norm)
        return beside

    def next_clip_norm(self, within: int, n_clients: int) -> float:
        """Return C of the next round, closer to the quantile (Andrew et al., NeurIPS 2021, section 3).

        Args:
            within: noisy sum of what clients with a norm within C added.
            n_clients: in the sums.
        """
        if self.clip_quantile is None or not n_clients:
            return self.clip_norm
        share = min(1.0, max(0.0, within / (self.norm_weight * n_clients)))
        return self.clip_norm * math.exp(-_CLIP_STEP * (share - self.clip_quantile))

    def tally_of(self, votes: Integers, n_updates: int, n_cohorts: int) -> RoundTally | None:
        """Return the tally of (n_votes,) noisy votes of all cohorts. None without votes."""
        if not self.vote_weight:
            return None
        worse, better = (votes / self.vote_weight).tolist()
        return RoundTally(n_updates, worse, better, self._deviation(n_cohorts) / self.vote_weight)

    def _deviation(self, n_cohorts: int) -> float:
        """Return the standard deviation of all helpers' noise in each number, over ``n_cohorts`` cohorts."""
        return math.sqrt(n_cohorts * self.helpers * self.noise)

    def is_plausible(self, total: Integers, n_clients: int) -> bool:
        """Whether ``n_clients`` clients and the noise can add up to this; see `foltr.core.secure.plausibility`."""
        beside = self.n_votes * self.vote_weight**2 + self.norm_weight**2
        longest = math.isqrt(self.bound**2 + beside - 1) + 1 if beside else self.bound
        return is_plausible(
            total,
            "gamma" if self.mechanism == "gamma" else "gaussian",
            n_clients=n_clients,
            bound=longest,
            noise=self.noise,
            noises=self.helpers * (1.0 if self.correlation is None else self.correlation.spread),
        )


def secure_sums_of(config: SimulationConfig, training: Training, ranker: Ranker) -> SecureSums | None:
    """Return the settings of a run's secure sums. None if the federator sees every update."""
    if config.privacy != "secure":
        return None
    dim = body_spec(training, ranker).n_values
    bound = bound_for(dim)
    if config.norm_proof == "l2":
        check_masks(dim, bound)
    vote_weight = default_vote_weight(bound) if config.take_back else 0
    norm_weight = 0 if config.clip_quantile is None else default_vote_weight(bound)
    period = period_for(config.rounds, config.participations)
    correlation = None
    if config.mechanism == "correlated":
        # Epsilon is for all turns, also for those that a short run does not reach.
        correlation = best_correlation(period * config.participations, period, config.participations)
    return SecureSums(
        mechanism=config.mechanism,
        bound=bound,
        noise=_noise_of(config, bound, vote_weight, norm_weight, correlation),
        clip_norm=config.clip_norm or usual_clip_norm(training, config.interactions),
        helpers=config.helpers,
        cohorts=cohorts_of(config),
        period=period,
        seed=config.seed,
        norm_proof=config.norm_proof,
        vote_weight=vote_weight,
        norm_weight=norm_weight,
        clip_quantile=config.clip_quantile,
        correlation=correlation,
    )


def promise_of(config: SimulationConfig, sums: SecureSums) -> dict[str, Any]:
    """Return the privacy part of a result: the sums' promise to a client that takes part in all its turns."""
    has_noise, is_pure = sums.mechanism != "none", sums.mechanism == "gamma" and sums.norm_proof == "none"
    figures = {
        "mode": "secure",
        "mechanism": sums.mechanism,
        "epsilon": config.epsilon if has_noise else None,
        "delta": None if not has_noise else 0.0 if is_pure else config.delta,
        "participations": config.participations,
        "helpers": sums.helpers,
        "period": sums.period,
        "cohorts": sums.cohorts,
        "bound": sums.bound,
        "noise": sums.noise,
        "clip_norm": sums.clip_norm,
        "norm_proof": sums.norm_proof,
        "vote_weight": sums.vote_weight or None,
        "clip_quantile": sums.clip_quantile,
        "band": None if sums.correlation is None else sums.correlation.band,
    }
    delta = "" if is_pure else f" with delta {config.delta:g}"
    promise = f"epsilon {config.epsilon:g}{delta} for {config.participations} participations" if has_noise else "none"
    return {**figures, "summary": f"secure sums of {sums.helpers} helpers, {sums.mechanism}: {promise}"}


class SecureAggregation(KeptUpdates):
    """An aggregation that receives only the noised mean of each cohort.

    Args:
        aggregation: of the means, equally weighted.
        sums: their settings.
        number: of the round.
        n_expected: number of updates.
        hostile: names of clients that do not clip.
        votes: called once all have learned; returns votes by name. Missing clients have no opinion.

    Attributes:
        norm_proofs: after `finish`, of all cohorts; None without norm proofs.
        tally: after `finish`, of the votes in them; None without votes, or if a sum is too long.
        next_clip_norm: after `finish`, C of the next round; until then, of this one.
    """

    def __init__(
        self,
        aggregation: UpdateReceiver,
        sums: SecureSums,
        number: int,
        n_expected: int,
        hostile: Collection[str],
        votes: Callable[[], Mapping[str, Opinion]] = dict,
    ) -> None:
        super().__init__(aggregation, n_expected)
        self._sums = sums
        self._number = number
        self._hostile = hostile
        self._votes = votes
        self.tally: RoundTally | None = None
        self.next_clip_norm = sums.clip_norm
        self.norm_proofs = None if sums.norm_proof == "none" else NormProofs()

    @property
    def n_values(self) -> int:
        """The number of values in an update."""
        return self._aggregation.n_values

    @property
    def covered(self) -> slice:
        """The entries of the model that updates cover."""
        return self._aggregation.covered

    def values_of(self, body: UpdateBody) -> NDArray[np.float32]:
        """Return the (n_values,) values of an update. Raises DataError for one that does not fit this federation."""
        return self._aggregation.values_of(body)

    def finish(self, base: NDArray[np.float32], memory: Memory = NO_MEMORY) -> NextModel:
        """Return the next model. Raises TooFewUpdatesError if nothing was released: no updates, or a sum too long."""
        rows, _, names = self._updates.all()
        entropy = seeded_entropy(hashlib.sha256(b"simulated sums %d %d" % (self._sums.seed, self._number)).digest())
        cohorts = self._sums.cohorts_of_round(self._number, names)
        filled = np.unique(cohorts).tolist()
        if not filled:
            raise TooFewUpdatesError("nobody took part")
        votes = self._votes() if self._sums.vote_weight else {}
        sums = [self._sum_of(cohort, cohorts, rows, names, votes, entropy) for cohort in filled]
        means = [self._mean_of(total, n) for total, n in sums]
        beside = sum((total[self.n_values :] for total, _ in sums), np.zeros(self._sums.n_beside, np.int64))
        n_updates = sum(n for _, n in sums)
        self.tally = self._sums.tally_of(beside[: self._sums.n_votes], n_updates, len(sums))
        if self._sums.clip_quantile is not None:
            self.next_clip_norm = self._sums.next_clip_norm(int(beside[-1]), n_updates)
        self._aggregation.add_rows(
            np.array(means, np.float32), np.ones(len(filled), np.int64), [f"cohort {cohort}" for cohort in filled]
        )
        return self._aggregation.finish(base, memory)

    def _sum_of(
        self,
        cohort: int,
        cohorts: Integers,
        rows: NDArray[np.float32],
        names: list[str],
        votes: Mapping[str, Opinion],
        entropy: Entropy,
    ) -> tuple[Integers, int]:
        """(n_values + n_beside,) a cohort's sum with noise, and the number of clients in it."""
        sums, n = self._sums, 0
        members = np.flatnonzero(cohorts == cohort)
        total = np.zeros(self.n_values + sums.n_beside, np.int64)
        for i in members.tolist():
            hostile = names[i] in self._hostile
            encoded = (sums.encode_hostile if hostile else sums.encode)(rows[i], entropy)
            if sums.is_proved(encoded):
                vote = votes.get(names[i], Opinion.NONE)
                total[: self.n_values] += encoded
                total[self.n_values :] += sums.encode_beside(rows[i], vote, hostile=hostile)
                n += 1
        self._count_proofs(n, len(members))
        for helper in range(sums.helpers):
            total += sums.noise_in(self._number, cohort, helper, len(total), entropy)
        if not sums.is_plausible(total, n):
            raise TooFewUpdatesError("sum_implausible: the sum of a cohort is longer than its clients can make it")
        return total, n

    def _mean_of(self, total: Integers, n: int) -> NDArray[np.float64]:
        """(n_values,) the released mean of a cohort."""
        return decode_mean(from_signed(total[: self.n_values]), n, self._sums.clip_norm, self._sums.bound)

    def _count_proofs(self, n_kept: int, n_members: int) -> None:
        """Count a cohort's proofs. Raises TooFewUpdatesError if most have failed, as with dishonest verifiers."""
        if self.norm_proofs is None:
            return
        self.norm_proofs += NormProofs(n_members, n_members - n_kept)
        if is_disagreement(n_members - n_kept, n_members):
            raise TooFewUpdatesError("verifiers_disagree: most norm proofs of a cohort have failed")


def _noise_of(
    config: SimulationConfig, bound: int, vote_weight: int, norm_weight: int, correlation: Correlation | None
) -> int:
    if config.mechanism == "none":
        return 0
    promise: dict[str, Any] = {
        "epsilon": config.epsilon,
        "delta": config.delta,
        "participations": config.participations,
        "norm_proofs": config.norm_proof == "l2",
    }
    if config.mechanism == "gamma":
        return least_scale(bound, **promise)
    independent = least_variance(bound, vote_weight=vote_weight, **promise)
    if correlation is None and not norm_weight:
        return independent
    # The variance is proportional to the square of what all turns change; beside updates noise is independent.
    k = config.participations
    of_updates = k if correlation is None else Fraction(correlation.squared_sensitivity)
    changed = of_updates * bound**2 + k * (vote_weight**2 + norm_weight**2)
    return math.ceil(independent * changed / (k * squared_sensitivity(bound, vote_weight)))
