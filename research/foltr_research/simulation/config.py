"""The configuration of one simulation: one frozen, JSON-serialisable record of all that its result depends on."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from foltr.core.aggregation.rule_spec import MEAN, RuleSpec, read_rule
from foltr.core.data.sources import SYNTHETIC, SYNTHETIC_LARGE, SYNTHETIC_NONLINEAR
from foltr.core.errors import SettingsError
from foltr.core.evaluation.named_metrics import NDCG_AT_10, read_metric
from foltr.core.methods.aggregations import is_plain_mean
from foltr.core.methods.preconditions import remedies, rule_problem
from foltr.core.methods.registry import (
    METHODS,
    Ranker,
    check_method,
    check_rule,
    draws_lists,
    methods_with,
    parameters_of,
    ranker_of_method,
    spec_of,
    training_for,
    usual_learning_rate,
)
from foltr.core.methods.spec import Lists
from foltr.core.protocol.explorations import SAFE, Exploration, SamplingExploration, read_exploration
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.trainings import Training
from foltr.core.secure.accounting import (
    DEFAULT_DELTA,
    DEFAULT_EPSILON,
    DEFAULT_PARTICIPATIONS,
    LEAST_DELTA,
    LEAST_EPSILON,
    MOST_EPSILON,
)
from foltr.core.secure.plan import N_MAX_HELPERS, N_MIN_HELPERS, NormProof
from foltr_research.attacks.registry import CLICKS, AttackSpec, check_attack, read_attack
from foltr_research.simulation.click_tables import check_examined
from foltr_research.simulation.method_names import (
    LAMBDARANK_LEARNING_RATE,
    SIMULATOR_METHODS,
    check_name_of_method,
    check_votes,
    methods_by_pdgd,
)
from foltr_research.simulation.plugins import load_named

MechanismOfRun = Literal["gaussian", "gamma", "correlated", "none"]
_COHORTS_OF_RULES: Final = 20
PopulationKind = Literal[
    "iid", "type1", "type1-iid", "type1-iid-per-intent", "type2", "type3", "type4", "type1+type4", "type2+type4"
]
POPULATIONS: tuple[str, ...] = get_args(PopulationKind)

SYNTHETIC_INTENTS = "synthetic-intents"
GENERATED_DATA = (SYNTHETIC, SYNTHETIC_NONLINEAR, SYNTHETIC_LARGE, SYNTHETIC_INTENTS)

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Value = bool | int | float | str
# Names are put into columns and lines unescaped.
ClickModelName = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LearningSettings(_Settings):
    """What is learned from which data, and how."""

    data: str = "synthetic"
    """A folder with a LETOR data set, or mslr-sample, synthetic, synthetic-nonlinear, synthetic-large; of type1
    populations a folder of intents or synthetic-intents."""
    fold: int | None = Field(default=None, ge=1, le=100)
    """The fold, if the data set is published in folds."""
    method: str = "fpdgd"
    """How it learns: one of `foltr methods`, or pdgd, pdgd-batch, lambdarank or local (only simulated)."""
    parameters: dict[str, Value] = Field(default_factory=dict)
    """Parameters of the method; those not named keep its defaults."""
    ranker: Literal["linear", "neural"] = "linear"
    """The kind of ranker."""
    hidden: int = Field(default=64, ge=1, le=4096)
    """Hidden units of a neural ranker."""
    activation: Literal["sigmoid", "relu"] | None = None
    """Activation of the hidden units; if unset relu for foltr-es, else sigmoid."""


class PopulationSettings(_Settings):
    """Who takes part, and how clients differ."""

    clients: Count = 10
    """Simulated devices."""
    participants: Count | None = None
    """Clients drawn for each round; unset takes all."""
    interactions: Annotated[int, Field(ge=1, le=100_000)] = 5
    """Interactions of each client in a round, unless its quantity differs (type4)."""
    clicks_per_round: Count | None = None
    """fedips, fedavg: a client repeats its queries of the round until it has this many clicks (m)."""
    rounds: Count = 200
    """Rounds of the federation."""
    clicks: tuple[ClickModelName, ...] = ("perfect",)
    """Click model. Of several, with commas, type3 gives each client one; else one is drawn for each interaction."""
    population: PopulationKind = "iid"
    """How data and users differ between the clients."""
    intent_agreement: Share | None = None
    """type1: how well one ranker can serve all intents, 0 to 1; unset 0.5, with genuine judgements 1."""
    labels_per_client: Annotated[int, Field(ge=1, le=5)] = 1
    """type2: grades a client has."""
    quantities: tuple[Annotated[int, Field(ge=1, le=100_000)], ...] = (1, 3, 5, 7, 9)
    """type4: interactions in a round, with commas, shared out among the clients."""
    shared_fraction: Share = 0.0
    """Data sharing: which share of the training queries is taken out as common data."""
    shared_alpha: Share = 0.0
    """Data sharing: which share of the common data each client gets."""
    warm_up_interactions: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Data sharing: interactions by which PDGD learns the first model from the common data."""
    logging_fraction: Share = 0.0
    """fedips, fedavg: rank by LambdaRank on this share of the training queries; 0 ranks by the newest model."""
    exploration: str | None = None
    """How devices draw lists, spelled as for `foltr federator run`; unset `sampling`, as in the papers, or with a base
    feature a federation's default."""
    base_feature: Count | None = None
    """The application's own order: by this feature, highest first. Lists have it until the model has proved better;
    unset the application has no order, as in the papers, and every list is the model's."""


class DefenceSettings(_Settings):
    """The rule that aggregates updates, who is hostile, and what can take a model back."""

    aggregation: str = "mean"
    """The rule that aggregates updates, e.g. median or nnm+krum; `foltr rules` lists them."""
    byzantine: Annotated[float, Field(ge=0, le=10_000_000, allow_inf_nan=False)] = 0.2
    """Hostile clients to tolerate: a number of them, or a share below 0.5 of a round's updates."""
    aggregation_parameters: dict[str, Value] = Field(default_factory=dict)
    """Parameters of the rule; those not named keep its defaults."""
    aggregation_fallback: str = "median"
    """The rule for rounds with too few updates for `aggregation`, or abandon."""
    attack: str | None = None
    """What hostile clients do; `foltr attacks list` lists all attacks."""
    attackers: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """How many clients are hostile: the first ones by number."""
    attack_parameters: dict[str, Value] = Field(default_factory=dict)
    """Parameters of the attack; those not named keep its defaults."""
    take_back: bool = False
    """Devices vote on each model against an anchor, and a majority takes it back."""
    liars_vote: Literal["better", "worse", "honest"] = "better"
    """With take_back: how hostile clients vote, to protect their attack or to have good models taken back."""


class SecureSettings(_Settings):
    """The settings of secure sums."""

    privacy: Literal["trusted", "secure"] = "trusted"
    """trusted: the federator sees every update. secure: noised sums only, without the masks, which change nothing."""
    mechanism: MechanismOfRun = "gaussian"
    """Secure: the noise that each helper adds; correlated (only simulated): gaussian, partly cancels across rounds;
    none shows what clipping and the grid cost alone."""
    norm_proof: NormProof = "l2"
    """Secure: l2 leaves out updates that are longer than a proof allows; with none they are not detected."""
    epsilon: Annotated[float, Field(ge=LEAST_EPSILON, le=MOST_EPSILON, allow_inf_nan=False)] = DEFAULT_EPSILON
    """Secure: epsilon of all participations of a client together."""
    delta: Annotated[float, Field(ge=LEAST_DELTA, lt=1, allow_inf_nan=False)] = DEFAULT_DELTA
    """Secure: delta likewise, of gaussian noise and norm proofs; gamma without proofs needs none."""
    participations: Count = DEFAULT_PARTICIPATIONS
    """Secure: how often a client takes part at most; with more rounds it has a turn in one of several."""
    cohorts: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Secure: number of sums in a round, which the rule compares; unset 1 for the mean, else 20."""
    helpers: Annotated[int, Field(ge=N_MIN_HELPERS, le=N_MAX_HELPERS)] = 2
    """Secure: number of helpers; each adds all of the noise."""
    clip_norm: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    """Secure: the norm to which updates are clipped; unset 0.15 * sqrt(interactions) * learning_rate / 0.1 if lists are
    sampled, else a fifth of it."""
    clip_quantile: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None = None
    """Secure: the norm to clip to follows this quantile of honest updates' norms, noised, from clip_norm on (only
    simulated); unset it stays."""


class SimulationConfig(SecureSettings, DefenceSettings, PopulationSettings, LearningSettings):
    """One run. Two equal configurations on the same data have equal results, bit for bit."""

    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 1
    """Seed of everything simulated."""
    eval_every: Count = 10
    """Rounds between evaluations; the first model and the last are always evaluated."""
    evaluate_on: Literal["test", "validation"] = "test"
    """The queries to measure on: validation queries (vali.txt) are for choosing parameters."""
    metrics: tuple[Annotated[str, StringConstraints(min_length=1, max_length=64)], ...] = (NDCG_AT_10,)
    """Metrics on the test queries, with commas: ndcg@k, mrr@k, err@k, map or maxrr. nDCG@10 is always measured."""

    @field_validator("clicks", "metrics", mode="before")
    @classmethod
    def _one_name(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("clicks", "quantities")
    @classmethod
    def _not_empty(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if not value:
            raise ValueError("at least one is needed")
        return value

    @field_validator("parameters", "aggregation_parameters", "attack_parameters")
    @classmethod
    def _numbers_as_numbers(cls, value: dict[str, Value]) -> dict[str, Value]:
        # So that a configuration from the command line equals the same one from JSON.
        return {name: _number(item) if isinstance(item, str) else item for name, item in sorted(value.items())}

    @property
    def quantities_of_updates(self) -> tuple[int, int]:
        """The fewest and the most interactions of a client in a round."""
        if "type4" in self.population:
            return min(self.quantities), max(self.quantities)
        return self.interactions, self.interactions

    @property
    def other_metrics(self) -> list[str]:
        """The metrics beside nDCG@10, each once."""
        return [name for name in dict.fromkeys(self.metrics) if name != NDCG_AT_10]

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values, validated like a new one. SettingsError names a wrong one."""
        return self.read({**self.model_dump(), **values})

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Build a configuration from names and values. Raises SettingsError in one line."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            problems = (
                f"{problem['loc'][0] if problem['loc'] else 'configuration'}: {_error_text(problem)}"
                for problem in error.errors(include_url=False)
            )
            raise SettingsError("; ".join(dict.fromkeys(problems))) from error


def check_config(config: SimulationConfig) -> None:
    """Raise SettingsError, in one line, for fields that contradict each other. Imports what is named from outside."""
    load_named(config)
    check_name_of_method(config.method)
    if config.participants is not None and config.participants > config.clients:
        raise SettingsError(f"participants: {config.participants} of {config.clients} clients")
    logged = methods_with(Lists.LOGGED)
    for name, wanted in (("clicks_per_round", config.clicks_per_round), ("logging_fraction", config.logging_fraction)):
        if wanted and config.method not in logged:
            raise SettingsError(f"{name}: only for the methods {' and '.join(logged)}, not {config.method}")
    by_pdgd = methods_by_pdgd()
    if config.warm_up_interactions and config.method not in by_pdgd:
        raise SettingsError(f"warm_up_interactions: for methods by PDGD ({', '.join(by_pdgd)}), not {config.method}")
    if (config.shared_alpha or config.warm_up_interactions) and not config.shared_fraction:
        raise SettingsError("shared_fraction: data sharing needs a share of the training queries, e.g. 0.1")
    if config.shared_fraction and config.population.startswith("type1"):
        raise SettingsError("shared_fraction: data sharing is for populations with one set of labels, not type1")
    if config.method == "lambdarank" and config.ranker != "linear":
        raise SettingsError("lambdarank: it is a method for linear rankers; choose ranker = linear")
    if config.method == "lambdarank" and config.participants is not None:
        raise SettingsError("participants: lambdarank has no rounds of clients, one learner sees all; leave it out")
    if config.base_feature is not None and not (config.method in METHODS and draws_lists(config.method)):
        drawn = ", ".join(methods_with(Lists.DRAWN))
        raise SettingsError(f"base_feature: {config.method} draws no lists by score; choose one of {drawn}")
    for name in config.metrics:
        read_metric(name)
    parameter_values(config)
    training = _training(config)
    # With one feature: the data's are not known yet, and only the size of a neural ranker depends on them.
    ranker = ranker_of_method(config.method, config.ranker, 1, config.hidden, config.activation)
    check_method(training, ranker)
    check_examined(config.clicks, training.serp_length)
    _check_secure(config, training)
    _check_rule(config, training)
    _check_attack(config, training)
    _check_say(config, training)


def rule_of(config: SimulationConfig) -> RuleSpec:
    """Return the aggregation rule. Raises SettingsError for an unknown one."""
    return read_rule(
        config.aggregation,
        byzantine=config.byzantine,
        parameters=config.aggregation_parameters,
        fallback=config.aggregation_fallback,
    )


def attack_of(config: SimulationConfig) -> AttackSpec | None:
    """Return the attack, or None. Raises SettingsError for an unknown one."""
    if config.attack is None:
        # With votes, attackers without an attack can still lie.
        if (config.attackers and not config.take_back) or config.attack_parameters:
            raise SettingsError("attack: attackers need an attack; `foltr attacks list` lists all")
        return None
    spec = read_attack(config.attack, config.attack_parameters)
    return spec if config.attackers else None


def cohorts_of(config: SimulationConfig) -> int:
    """Return G of a run with secure sums: one sum for the mean, and several to compare for any other rule."""
    return config.cohorts or (1 if is_plain_mean(rule_of(config)) else _COHORTS_OF_RULES)


def _check_secure(config: SimulationConfig, training: Training) -> None:
    """Raise SettingsError if updates cannot be summed securely, or secure settings are given without secure sums."""
    if config.privacy != "secure":
        for name, field in SecureSettings.model_fields.items():
            if getattr(config, name) != field.default:
                is_methods = config.method in METHODS and name in parameters_of(config.method)
                other = f"; {config.method} has its own among its parameters" if is_methods else ""
                raise SettingsError(f"{name}: only for secure sums; add privacy = secure, or leave it out{other}")
        return
    method = spec_of(training)
    if config.method in SIMULATOR_METHODS:
        raise SettingsError(f"privacy: {config.method} has no federator that could see less; leave it at trusted")
    if method.not_weights is not None:
        raise SettingsError(f"privacy: {config.method} sends {method.not_weights}, which has no secure sum")
    if method.spent_when_sent:
        raise SettingsError(f"privacy: {config.method} adds noise itself to what it sends; choose fpdgd")
    if config.participants is not None:
        raise SettingsError("participants: with secure sums participations and rounds say whose turn it is")
    if config.clicks_per_round is not None or "type4" in config.population:
        raise SettingsError("privacy: an update of a secure sum has exactly as many interactions as any other")
    if config.clip_quantile is not None and config.mechanism == "gamma":
        raise SettingsError("clip_quantile: it is for norms in L2, and gamma clips in L1; choose mechanism = gaussian")
    rule = rule_of(config)
    if rule.rule == "adaptive":
        raise SettingsError("aggregation: adaptive judges by each client's history, and secure sums have none")
    if not is_plain_mean(rule) and config.cohorts == 1:
        raise SettingsError(f"aggregation: {rule.text} compares sums, and with cohorts = 1 a round has one")


def _check_rule(config: SimulationConfig, training: Training) -> None:
    rule = rule_of(config)
    if config.method in SIMULATOR_METHODS and rule.text != MEAN.text:
        raise SettingsError(
            f"aggregation: {config.method} has no federator, so nothing is aggregated; leave it at mean, "
            "or choose a method that the service runs too"
        )
    check_rule(training, rule)
    n, setting = (config.clients, "clients") if config.participants is None else (config.participants, "participants")
    if config.privacy == "secure":
        n, setting = cohorts_of(config), "cohorts"
    too_few = rule_problem(rule, n)
    if too_few is not None:
        beyond = "; its parameter beyond_bounds=true waives that, and promises nothing"
        waivable = rule.rule != "adaptive" and not rule.beyond_bounds
        raise SettingsError(
            f"aggregation: {too_few}; {remedies(rule, n, f'raise {setting}')}{beyond if waivable else ''}"
        )


def _check_attack(config: SimulationConfig, training: Training) -> None:
    spec = attack_of(config)
    if 2 * config.attackers >= config.clients and config.attackers:
        raise SettingsError(
            f"attackers: {config.attackers} of {config.clients} clients; fewer than half of them may attack"
        )
    if spec is None:
        return
    if config.method == "lambdarank":
        raise SettingsError("attack: lambdarank learns from relevance grades, which no client sends; leave it out")
    if spec.name != CLICKS and config.method in SIMULATOR_METHODS:
        raise SettingsError(
            f"attack: {config.method} has no updates that {spec.name} could change; choose attack = {CLICKS}, "
            "or a method that the service runs too"
        )
    check_attack(spec, training)


def _check_say(config: SimulationConfig, training: Training) -> None:
    """Raise SettingsError if clients are to vote and cannot, or are to lie in votes and do not vote."""
    mechanism = config.mechanism if config.privacy == "secure" else None
    if config.take_back:
        check_votes(config.method, training, mechanism, config.norm_proof)
    elif config.liars_vote != SimulationConfig.model_fields["liars_vote"].default:
        raise SettingsError("liars_vote: nobody votes; add take_back = true, or leave it out")


def parameter_values(config: SimulationConfig) -> dict[str, Value]:
    """Return the parameters of a simulator-only method, or those given for another. Raises SettingsError as above."""
    if config.method != "lambdarank":
        return config.parameters
    for name, value in config.parameters.items():
        if name != "learning_rate":
            raise SettingsError(f"{name}: lambdarank has no such parameter; it has learning_rate")
        if isinstance(value, bool | str) or not 0 < value <= 100:
            raise SettingsError(f"lambdarank: learning_rate: {value!r} is not a number above 0 and at most 100")
    return {"learning_rate": LAMBDARANK_LEARNING_RATE, **config.parameters}


def resolve(
    config: SimulationConfig, n_features: int, logging_policy: NDArray[np.float32] | None = None
) -> tuple[Training, Ranker]:
    """Return the clients' training settings and the ranker.

    Args:
        logging_policy: (d,) weights of the ranker that shows the lists (fedips, fedavg).

    Raises:
        SettingsError: they are invalid, alone or together.
    """
    check_config(config)
    training = _training(config)
    if logging_policy is not None and spec_of(training).lists is Lists.LOGGED:
        training = training.model_copy(update={"logging_policy": pack_vector(logging_policy)})
    ranker = ranker_of_method(config.method, config.ranker, n_features, config.hidden, config.activation)
    check_method(training, ranker)
    return training, ranker


def _training(config: SimulationConfig) -> Training:
    method = config.method if config.method in METHODS else "fpdgd"
    parameters: dict[str, object] = dict(config.parameters) if config.method != "lambdarank" else {}
    if "logging_policy" in parameters:
        raise SettingsError("logging_policy: set logging_fraction instead, the share of queries it is trained on")
    if "n_clients" in parameters_of(method):
        parameters.setdefault("n_clients", config.participants or config.clients)
    exploration = _exploration(config, method)
    usual = usual_learning_rate(config.method, config.ranker, exploration)
    if usual is not None:
        parameters.setdefault("learning_rate", usual)
    fewest, most = config.quantities_of_updates
    training = training_for(method, parameters, most, exploration)
    return training.model_copy(update={"min_interactions": fewest})


def _exploration(config: SimulationConfig, method: str) -> Exploration | None:
    if config.exploration is None:
        laboratory = SamplingExploration() if config.base_feature is None else SAFE
        return laboratory if draws_lists(method) else None
    exploration = read_exploration(config.exploration)
    if config.method in SIMULATOR_METHODS and exploration != SamplingExploration():
        raise SettingsError(f"exploration: {config.method} is run with sampling only; leave it unset")
    return exploration


def _number(text: str) -> Value:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _error_text(problem: Any) -> str:
    if problem["type"] == "extra_forbidden":
        return f"there is no such field; known are {', '.join(SimulationConfig.model_fields)}"
    return f"{problem['msg']}, not {problem['input']!r:.60}"
