"""What an operator asks of the noise of secure sums, as options of ``foltr policy new`` and ``foltr privacy plan``."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from foltr.cli.fields import Option
from foltr.core.operator.policy_terms import DEFAULT_EPOCH_HOURS, NoiseBy
from foltr.core.secure.accounting import (
    DEFAULT_DELTA,
    DEFAULT_EPSILON,
    LEAST_DELTA,
    LEAST_EPSILON,
    MOST_EPSILON,
)
from foltr.core.secure.mechanisms import MechanismName
from foltr.core.secure.plan import NormProof

_MOST = 10_000_000


class NoiseOptions(BaseModel):
    """The terms of a policy, by the names of `foltr.core.operator.policy_terms.PolicyTerms`."""

    model_config = ConfigDict(use_attribute_docstrings=True, allow_inf_nan=False)

    mechanism: MechanismName = "gaussian"
    """gaussian, or gamma: far more noise, and without norm proofs a pure epsilon."""
    noise_by: NoiseBy = "helpers"
    """Of gamma: helpers, each of whom adds all of it, or clients, who share it."""
    epsilon: float = Field(default=DEFAULT_EPSILON, ge=LEAST_EPSILON, le=MOST_EPSILON)
    """Of all participations of a client together."""
    delta: float = Field(default=DEFAULT_DELTA, ge=LEAST_DELTA, le=1.0)
    """Likewise; of gamma only with norm proofs."""
    participations: int | None = Field(default=None, ge=1, le=_MOST)
    """k: how often a client takes part in its life, at most; default: 20, or --rounds if fewer."""
    clients: int = Field(default=2000, ge=1, le=_MOST)
    """Of the federation; with --rounds they say how often whose turn is."""
    rounds: int = Field(default=200, ge=1, le=_MOST)
    """In which a client has all its participations."""
    dim: int = Field(default=136, ge=1, le=2_000_000)
    """Numbers of an update: a linear ranker's features."""
    interactions: int = Field(default=5, ge=1, le=100_000)
    """Of every update."""
    norm_proof: NormProof = "l2"
    """l2: each message proves that its vector is not too long; or none."""
    votes: Annotated[bool | None, Option("--votes/--no-votes")] = None
    """Devices vote on the newest model in the same sum; default: with gaussian noise and norm proofs of l2."""
    evaluation: Annotated[bool | None, Option("--evaluation/--no-evaluation")] = None
    """Devices say in the same sum what their users' lists have earned; default: likewise."""
    cohorts: int | None = Field(default=None, ge=1, le=10_000)
    """Sums of a round; default: 1, or with --norm-proof none 20 from 400 clients a round on."""
    n_min: int | None = Field(default=None, ge=2, le=2**31 - 1)
    """Clients of a cohort, at least; default: 100, or 10 in one of several."""
    n_max: int = Field(default=100_000, ge=2, le=2**31 - 1)
    """Likewise, at most."""
    shares: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """Where clients draw the noise: that of so many is enough; default: 9 in 10 of --n-min."""
    epoch_hours: int = Field(default=DEFAULT_EPOCH_HOURS, ge=1, le=8760)
    """So long seeds are sealed to the same keys, which helpers destroy as long after; the policy ends after as many
    epochs as helpers have keys for, 64."""
