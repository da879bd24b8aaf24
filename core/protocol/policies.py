"""The operator's policy makes a federation secure: who helps, the noise, and how often a client may take part.

It is signed with the enrolment key, so no federator can change it or leave it out: a device that knows one sends
nothing to a round that does not name it. Rounds name it by the hash of its signed bytes
(`foltr.core.protocol.signed_policies`).

A policy with too little noise for its stated epsilon is invalid: every reader refuses it.
"""

import hashlib
import math
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from foltr.core.errors import SettingsError
from foltr.core.protocol.fields import MAX_DIM, InFederation, Message, Name, PublicKey, Seal, Sha256, Timestamp
from foltr.core.secure.accounting import (
    N_CREDITS,
    N_EVALUATION,
    N_VOTES,
    check_masks,
    least_scale,
    least_variance,
    squared_sensitivity,
)
from foltr.core.secure.ledger import Allowance, gaussian_charge, laplace_charge, norm_proof_charge
from foltr.core.secure.message_proof import MessageShape
from foltr.core.secure.noise import LARGEST_SCALE as LARGEST_HELPER_SCALE
from foltr.core.secure.noise import LARGEST_VARIANCE
from foltr.core.secure.norm_proof import proof_shape
from foltr.core.secure.polya import LARGEST_SCALE as LARGEST_SHARED_SCALE

N_MIN_HELPERS, N_MAX_HELPERS = 2, 8
NEW_POLICY: Final = "foltr policy new --helper NAME.keys --helper NAME.keys"
"""The command for another policy, for messages: with the file of each helper's new keys, and the former options."""
MAX_EPOCHS: Final = 64
MAX_SECURE_DIM: Final = MAX_DIM // 2
"""Half of other updates' limit: a masked number has 8 bytes instead of 4."""
MAX_PREDECESSORS: Final = 64
"""A device that was off for more policies than this cannot tell whether the newest follows from the one it knows."""
_LARGEST_SUM: Final = 2**62
"""Sums stay well below p / 2, so that they can be read as signed numbers."""
_NOISE_REACH: Final = 64
"""Noise is never so many standard deviations, or scales, long."""


class HelperKeys(Message):
    """A helper's public keys: Ed25519, which signs its answers, and X25519, for sealing.

    Attributes:
        sealing_key: to which the policy's verify key is sealed; the helper has it as long as the policy.
        epoch_keys: of each epoch in order, to which seeds are sealed in it; destroyed soon after it.
    """

    name: Name
    signing_key: PublicKey
    sealing_key: PublicKey
    epoch_keys: Annotated[list[PublicKey], Field(min_length=1, max_length=MAX_EPOCHS)]


class GaussianNoise(Message):
    """Each helper adds discrete Gaussian noise with this variance, in squared steps of the grid, after an L2 clip."""

    kind: Literal["gaussian"] = "gaussian"
    variance: Annotated[int, Field(ge=1, le=LARGEST_VARIANCE)]


class GammaNoise(Message):
    """Discrete Laplace noise with this scale, in steps of the grid, after an L1 clip.

    Each helper adds all of it; or, with ``n_shares``, the clients do, and the noise of so many is enough.
    """

    kind: Literal["gamma"] = "gamma"
    scale: Annotated[int, Field(ge=1, le=LARGEST_HELPER_SCALE)]
    n_shares: Annotated[int, Field(ge=1, le=1_000_000)] | None = None

    @model_validator(mode="after")
    def _shares_have_a_table(self) -> "GammaNoise":
        if self.n_shares == 1:
            raise ValueError(
                "n_shares 1: each client would add all of the noise, so a sum would have the noise of all clients; "
                "choose --shares 2 or more, or --noise-by helpers"
            )
        if self.n_shares is not None and self.scale > LARGEST_SHARED_SCALE:
            raise ValueError(f"scale {self.scale}; clients draw noise of a scale up to {LARGEST_SHARED_SCALE}")
        return self


class L2NormProof(Message):
    """Each message proves that its vector's L2 norm is at most the bound; helpers and federator check that together.

    Attributes:
        federator_key: X25519, to which the federator's copy of the verify key is sealed.
        federator_seal: that copy.
        helper_seals: of each helper in the policy's order, its copy, sealed to its sealing key.
    """

    kind: Literal["l2"] = "l2"
    federator_key: PublicKey
    federator_seal: Seal
    helper_seals: Annotated[list[Seal], Field(max_length=N_MAX_HELPERS)]


class SecureVotes(Message):
    """With its vector each client adds a vote on the newest model to the sum: `N_VOTES` numbers, worse and better.

    Attributes:
        weight: v, in steps of the grid: what a client with an opinion adds to the number of that opinion. To all others
            it adds zero, and each message proves that each of its numbers is one of the two.
    """

    weight: Annotated[int, Field(ge=1, le=2**31 - 1)]


class SecureEvaluation(Message):
    """With its vector each client adds its lists' rewards to the sum: `N_EVALUATION` numbers, and one for credits.

    Attributes:
        weight: u, in steps of the grid: for each of the three means of its evaluation a client adds u with the mean's
            probability, and else zero. Each message proves that each of its numbers is one of the two.
        credit_weight: w, likewise: of the credits of its lists since the last time, cut to -1 to 1, it adds w or minus
            w with the size's probability, and else zero. None: there is no such number, as in older policies.
    """

    weight: Annotated[int, Field(ge=1, le=2**31 - 1)]
    credit_weight: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class Policy(InFederation):
    """Operator to all, retained: the rules that no federator can change. A higher version replaces a lower.

    Attributes:
        dim: d, how many numbers an update has.
        bound: C_int, of the norm of a client's integers.
        n_min, n_max: how many clients a cohort has whose sum a helper opens.
        n_interactions: B, of every update.
        max_participations: k, of a client in its life, over all versions of the policy.
        period: b, a client takes part in one round of so many.
        cohorts: G, sums of a round.
        epoch_s: the length of an epoch; the first one begins at ``issued_at`` (`foltr.core.protocol.epochs`).
        epsilon, delta: the most that k participations cost a client; ``gamma`` without norm proofs claims it with a
            delta of 0.
        norm_proof: what each message proves of its vector; None: nothing.
        predecessors: hashes of the policies before it, the newest first.
        votes: how clients vote; None: they do not.
        evaluation: how clients report their lists' rewards; None likewise.
    """

    kind_name: ClassVar[str] = "policy"
    longest_list: ClassVar[int] = max(MAX_EPOCHS, MAX_PREDECESSORS)
    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    issued_at: Timestamp
    helpers: Annotated[list[HelperKeys], Field(min_length=N_MIN_HELPERS, max_length=N_MAX_HELPERS)]
    noise: Annotated[GaussianNoise | GammaNoise, Field(discriminator="kind")]
    dim: Annotated[int, Field(ge=1, le=MAX_SECURE_DIM)]
    bound: Annotated[int, Field(ge=1, le=2**31 - 1)]
    n_min: Annotated[int, Field(ge=2, le=2**31 - 1)]
    n_max: Annotated[int, Field(ge=2, le=2**31 - 1)]
    n_interactions: Annotated[int, Field(ge=1, le=100_000)]
    max_participations: Annotated[int, Field(ge=1, le=2**31 - 1)]
    period: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    cohorts: Annotated[int, Field(ge=1, le=10_000)] = 1
    epoch_s: Annotated[int, Field(ge=1, le=10**11)]
    epsilon: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    delta: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
    norm_proof: L2NormProof | None = None
    predecessors: Annotated[list[Sha256], Field(max_length=MAX_PREDECESSORS)] = Field(default_factory=list)
    votes: SecureVotes | None = None
    evaluation: SecureEvaluation | None = None

    @model_validator(mode="after")
    def _helpers_are_different(self) -> "Policy":
        for keys in zip(*((each.name, each.signing_key) for each in self.helpers), strict=True):
            if len(set(keys)) < len(keys):
                raise ValueError("two helpers have the same name or key")
        sealed_to = [{each.sealing_key, *each.epoch_keys} for each in self.helpers]
        if len(set[bytes]().union(*sealed_to)) < sum(map(len, sealed_to)):
            raise ValueError("two helpers have the same name or key")
        return self

    @model_validator(mode="after")
    def _each_epoch_has_keys_of_its_own(self) -> "Policy":
        if len({len(each.epoch_keys) for each in self.helpers}) > 1:
            raise ValueError("its helpers have keys for different numbers of epochs; `foltr helper keys` makes them")
        if any(len(set(each.epoch_keys)) < self.n_epochs for each in self.helpers):
            raise ValueError("two epochs have the same key")
        return self

    @model_validator(mode="after")
    def _cohorts_are_opened(self) -> "Policy":
        if self.n_max < self.n_min:
            raise ValueError(f"n_max ({self.n_max}) is below n_min ({self.n_min})")
        if isinstance(self.noise, GammaNoise) and (self.noise.n_shares or 0) > self.n_min:
            raise ValueError(f"n_shares ({self.noise.n_shares}) is above n_min ({self.n_min})")
        if self.n_max * self.longest_message + len(self.helpers) * _NOISE_REACH * self.reach >= _LARGEST_SUM:
            raise ValueError(f"{self.n_max} clients and the noise add up to numbers of more than 62 bits")
        return self

    @model_validator(mode="after")
    def _norms_can_be_proved(self) -> "Policy":
        if self.norm_proof is None:
            return self
        if self.noise_by_clients:
            raise ValueError(
                "norm_proof: clients that add noise cannot prove the norm of what they send; choose --noise-by "
                "helpers, or --norm-proof none"
            )
        if len(self.norm_proof.helper_seals) != len(self.helpers):
            raise ValueError(f"{len(self.norm_proof.helper_seals)} sealed verify keys for {len(self.helpers)} helpers")
        try:
            check_masks(self.dim, self.bound)
        except SettingsError as error:
            raise ValueError(str(error)) from error
        return self

    @model_validator(mode="after")
    def _what_is_beside_is_protected(self) -> "Policy":
        evaluation = max(self.evaluation_weight, self.credit_weight)
        for what, weight in (("votes", self.vote_weight), ("evaluation", evaluation)):
            if not weight:
                continue
            if self.noise.kind != "gaussian":
                raise ValueError(
                    f"{what}: it takes gaussian noise, and the policy has {self.noise.kind}; choose --mechanism "
                    f"gaussian, or --no-{what}"
                )
            if self.norm_proof is None:
                raise ValueError(
                    f"{what}: without proofs one device counts as any number of them; choose --norm-proof l2, or "
                    f"--no-{what}"
                )
            if weight > self.bound:
                raise ValueError(f"{what}: a weight of {weight} is above the bound ({self.bound})")
            if self.n_summed > MAX_SECURE_DIM:
                raise ValueError(
                    f"{what}: {self.dim:,} numbers of an update and {self.n_summed - self.dim} beside it are more than "
                    f"a sum has at most ({MAX_SECURE_DIM:,}); choose a smaller --dim, or --no-{what}"
                )
        return self

    @model_validator(mode="after")
    def _noise_is_enough(self) -> "Policy":
        try:
            least = least_noise(self)
        except SettingsError as error:
            raise ValueError(str(error)) from error
        stated = self.noise.variance if isinstance(self.noise, GaussianNoise) else self.noise.scale
        if stated < least:
            raise ValueError(
                f"{self.noise.kind} noise of {stated}; epsilon {self.epsilon:g} for {self.max_participations} "
                f"participations needs {least}"
            )
        return self

    @property
    def n_epochs(self) -> int:
        return len(self.helpers[0].epoch_keys)

    @property
    def ends_at(self) -> float:
        """When the last epoch ends, in epoch seconds."""
        return self.issued_at + self.n_epochs * self.epoch_s

    @property
    def n_summed(self) -> int:
        """How many numbers the sum of a cohort has: of an update, then of votes, evaluation and credits, if any."""
        n_votes = 0 if self.votes is None else N_VOTES
        n_evaluation = 0 if self.evaluation is None else N_EVALUATION
        return self.dim + n_votes + n_evaluation + (N_CREDITS if self.credit_weight else 0)

    @property
    def vote_weight(self) -> int:
        """v; 0 without votes."""
        return 0 if self.votes is None else self.votes.weight

    @property
    def evaluation_weight(self) -> int:
        """u; 0 without evaluations."""
        return 0 if self.evaluation is None else self.evaluation.weight

    @property
    def credit_weight(self) -> int:
        """w; 0 without credits."""
        return 0 if self.evaluation is None else self.evaluation.credit_weight or 0

    @property
    def weights_beside(self) -> dict[str, int]:
        """v, u and w, in the form that all computations of privacy take."""
        names = "vote_weight", "evaluation_weight", "credit_weight"
        return {name: getattr(self, name) for name in names}

    @property
    def longest_message(self) -> int:
        """A whole number that bounds the norm of what one client adds to a sum, even if it votes twice."""
        honest = squared_sensitivity(self.bound, **self.weights_beside)
        return math.isqrt(honest + (N_VOTES - 1) * self.vote_weight**2 - 1) + 1

    @property
    def reach(self) -> int:
        """A whole number that bounds the standard deviation, or the scale, of one helper's noise."""
        noise = self.noise
        return math.isqrt(noise.variance) + 1 if isinstance(noise, GaussianNoise) else noise.scale

    @property
    def claimed_delta(self) -> float:
        """Return delta; 0 if epsilon is claimed without one."""
        is_pure = isinstance(self.noise, GammaNoise) and self.norm_proof is None
        return 0.0 if is_pure else self.delta

    @property
    def message_shape(self) -> MessageShape | None:
        """The length of messages, and of answers about their proofs; None if the policy asks for no proofs."""
        if self.norm_proof is None:
            return None
        return MessageShape(proof_shape(self.dim, self.bound), **self.weights_beside)

    @property
    def noise_by_clients(self) -> bool:
        return isinstance(self.noise, GammaNoise) and self.noise.n_shares is not None

    def helper(self, name: str) -> HelperKeys | None:
        """Return the helper's keys; None for an unknown name."""
        return next((each for each in self.helpers if each.name == name), None)


def least_noise(policy: Policy) -> int:
    """Return the least variance, or scale, at which the policy's epsilon holds."""
    promise: dict[str, Any] = {
        "epsilon": policy.epsilon,
        "delta": policy.delta,
        "participations": policy.max_participations,
        "norm_proofs": policy.norm_proof is not None,
    }
    if isinstance(policy.noise, GaussianNoise):
        return least_variance(policy.bound, **(promise | policy.weights_beside))
    return least_scale(policy.bound, **promise)


def allowance_of(policy: Policy) -> Allowance:
    """Return what the policy allows a client in its life, and the cost of a participation under it."""
    noise = policy.noise
    if isinstance(noise, GaussianNoise):
        charge = gaussian_charge(policy.bound, noise.variance, **policy.weights_beside)
    else:
        charge = laplace_charge(policy.bound, noise.scale)
    if policy.norm_proof is not None:
        charge += norm_proof_charge(policy.bound)
    is_pure = policy.claimed_delta == 0.0
    return Allowance(policy.max_participations, policy.epsilon, policy.delta, charge, is_pure)


def replace_epsilon_of(policy: Policy) -> float:
    """Return the epsilon of all participations if a vector is replaced by another one instead of by zeros."""
    allowance = allowance_of(policy)
    return allowance.epsilon_of(allowance.charge.times(policy.max_participations).replacing())


def cohort_of(policy_hash: bytes, cohorts: int, round_number: int, client_id: str) -> int:
    """Return which of a round's cohorts a client is in: 0 to cohorts - 1, by a hash that nobody chose."""
    seed = policy_hash + round_number.to_bytes(8, "big") + client_id.encode()
    return _hashed(b"foltr cohort\n" + seed) % cohorts


def is_turn_of(policy_hash: bytes, period: int, round_number: int, client_id: str) -> bool:
    """Whether a client takes part in this round: in one of each ``period`` that follow one another."""
    return (round_number - _hashed(b"foltr period\n" + policy_hash + client_id.encode())) % period == 0


def _hashed(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


class SecureRound(Message):
    """A round's announcement of its secure sum.

    Attributes:
        policy_hash: of its policy.
        clip_norm: C, to which devices shorten what they send. Privacy does not depend on it.
    """

    policy_hash: Sha256
    clip_norm: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
