"""A training tells devices what to learn: the ranker, and the settings of the method."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from foltr.core.protocol.explorations import SAFE, Exploration
from foltr.core.protocol.fields import MAX_DIM, Dim, Message, Rate


class LinearRankerSpec(Message):
    """A linear ranker: the score of a document is the dot product of its features and the weights."""

    kind: Literal["linear"] = "linear"
    n_features: Dim

    @property
    def n_weights(self) -> int:
        return self.n_features


Activation = Literal["sigmoid", "relu"]


class NeuralRankerSpec(Message):
    """A ranker with one hidden layer and no output bias (see `foltr.core.learning.neural` for the layout).

    ``activation`` is that of the hidden units: sigmoid is PDGD's, and ReLU that of FOLtR-ES as it was published.
    """

    kind: Literal["neural"] = "neural"
    n_features: Dim
    hidden: Annotated[int, Field(ge=1, le=4096)] = 64
    activation: Activation = "sigmoid"

    @model_validator(mode="after")
    def _weights_can_be_sent(self) -> "NeuralRankerSpec":
        if self.n_weights > MAX_DIM:
            raise ValueError(f"{self.n_weights} weights; at most {MAX_DIM}")
        return self

    @property
    def n_weights(self) -> int:
        return self.hidden * (self.n_features + 2)

    @property
    def n_base_weights(self) -> int:
        """The weights of the hidden layer, which come first."""
        return self.hidden * (self.n_features + 1)


RankerSpec = Annotated[LinearRankerSpec | NeuralRankerSpec, Field(discriminator="kind")]


class MethodTraining(Message):
    """Settings common to all methods. An update has ``min_interactions`` to ``max_interactions``, the oldest first."""

    # Databases store them as JSON.
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    serp_length: Annotated[int, Field(ge=1, le=1000)] = 10
    min_interactions: Annotated[int, Field(ge=1, le=100_000)] = 5
    max_interactions: Annotated[int, Field(ge=1, le=100_000)] = 5
    # For methods that draw their lists by score; others make their own lists, and ignore it.
    exploration: Exploration = SAFE

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Self:
        if self.max_interactions < self.min_interactions:
            raise ValueError(
                f"max_interactions ({self.max_interactions}) is below min_interactions ({self.min_interactions})"
            )
        return self


class PdgdTraining(MethodTraining):
    """FPDGD (fpdgd-2021, Algorithm 2): one PDGD step for each interaction."""

    kind: Literal["pdgd"] = "pdgd"
    learning_rate: Rate = 0.1


class FpdgdPaperTraining(MethodTraining):
    """FPDGD with the noise of its paper (fpdgd-2021, Algorithm 3); docs/methods.md says what it protects."""

    kind: Literal["fpdgd-paper"] = "fpdgd-paper"
    learning_rate: Rate = 0.1
    sensitivity: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 5.0
    epsilon: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 4.5
    # How many shares make up the noise.
    n_clients: Annotated[int, Field(ge=1, le=10_000_000)]


class FedProxTraining(MethodTraining):
    """FPDGD whose local steps are drawn towards the global model (thesis, Section 4.3.3; Li et al. 2020)."""

    kind: Literal["fedprox"] = "fedprox"
    learning_rate: Rate = 0.1
    mu: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 0.01


class FedPerTraining(MethodTraining):
    """FPDGD that shares the hidden layer only (thesis, Section 4.3.3; Arivazhagan et al. 2019)."""

    kind: Literal["fedper"] = "fedper"
    learning_rate: Rate = 0.1


class PersonalTraining(MethodTraining):
    """FPDGD with personal linear weights that never leave the device (`foltr.core.methods.personal`)."""

    kind: Literal["fpdgd-personal"] = "fpdgd-personal"
    learning_rate: Rate = 0.1
    personal_learning_rate: Rate = 0.2


class EvolutionTraining(MethodTraining):
    """FOLtR-ES (thesis, Section 3.1.1; Kharitonov 2019): reciprocal ranks under perturbed weights."""

    kind: Literal["foltr-es"] = "foltr-es"
    # Standard deviation of the perturbation of a weight.
    noise_scale: Annotated[float, Field(ge=1e-6, le=100, allow_inf_nan=False)] = 0.01
    antithetic: bool = True
    # The truth probability of the randomised response: that a metric is sent as it is.
    truth_probability: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.9
    server_learning_rate: Rate = 0.001


class FedIpsTraining(MethodTraining):
    """FedIPS (fedips-2021, Algorithm 1): clicks weighted by the inverse propensity of their position."""

    kind: Literal["fedips"] = "fedips"
    serp_length: Annotated[int, Field(ge=1, le=1000)] = 5
    learning_rate: Rate = 0.001
    server_learning_rate: Rate = 1.0
    propensities: Literal["known", "estimated"] = "known"
    # Of the relevance function that estimated propensities need; at the ranker's rate it would hardly move.
    relevance_learning_rate: Rate = 0.3
    # Known propensities are (1 / rank) ** position_bias unless an application knows its user's own.
    position_bias: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 1.0
    # Little-endian float32 weights of the linear ranker that draws the lists; empty: the newest model.
    logging_policy: Annotated[bytes, Field(max_length=65_536)] = b""


class FedAvgTraining(MethodTraining):
    """FedIPS without weights, its biased baseline (fedips-2021, Section 4)."""

    kind: Literal["fedavg"] = "fedavg"
    serp_length: Annotated[int, Field(ge=1, le=1000)] = 5
    learning_rate: Rate = 0.001
    server_learning_rate: Rate = 1.0
    logging_policy: Annotated[bytes, Field(max_length=65_536)] = b""


Training = Annotated[
    PdgdTraining
    | FpdgdPaperTraining
    | FedProxTraining
    | FedPerTraining
    | PersonalTraining
    | EvolutionTraining
    | FedIpsTraining
    | FedAvgTraining,
    Field(discriminator="kind"),
]
