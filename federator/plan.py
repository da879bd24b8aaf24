"""A federator's settings at start, frozen and passed down. Checks whether settings fit each other.

The bounds of single settings are in `foltr.cli.setting_groups`.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

from foltr.core.aggregation.rule_spec import ABANDON, shortfall
from foltr.core.errors import SettingsError
from foltr.core.methods.preconditions import remedies, rule_problem
from foltr.core.methods.registry import Ranker, check_method, check_rule, n_auxiliary, spec_of
from foltr.core.protocol.fields import MAX_DIM
from foltr.core.protocol.operator_keys import TrustedOperatorKey
from foltr.core.protocol.policies import NEW_POLICY, Policy
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.states import Pacing, Privacy
from foltr.core.protocol.topics import check_name
from foltr.core.protocol.trainings import Activation, LinearRankerSpec, NeuralRankerSpec, PdgdTraining, Training
from foltr.federator.job import UnlearningPolicy
from foltr.federator.pace import PacePolicy
from foltr.federator.round import RoundPolicy
from foltr.federator.secure_terms import SecureSettings
from foltr.federator.summing.preconditions import check_policy, check_secure


@dataclass(frozen=True)
class FederationPlan:
    """One federation: its ranker, its rounds, and its method.

    Args:
        training: the method and its settings.
        chosen_ranker: None means a linear one.
        schema: of its features; None if applications agree on them.
        first_weights: of the ranker that a new federation begins with, as float32; None: zeros, or drawn.
        seed: of a neural ranker's first weights; None draws them freshly. A linear one begins with zeros.
        stop_after_round: stop once this round has ended; None goes on for ever.
        resume_grace_s: at least this long an open round stays open after a restart.
        database_patience_s: how long one transaction is retried while the database is away: a minute outlasts its
            restart, and is short enough for a supervisor to notice a database that stays away.
        enrolment_key: the operator's public key or keys, by which clients' identities are checked; None accepts any
            name.
        key_sequence: how often the operator had replaced the federator's key before this one.
        unlearning: how forgotten clients are unlearned.
        secure: of a federation with secure sums; None: the federator is trusted, and sees every update.
        anchor: whether devices should compare the newest model with an older one and vote on it.
        evaluation: whether devices should report their lists' rewards. In secure sums the policy decides.
        pace: how often devices visit, and for how many updates in a round; None: they stay connected.
        history_rounds: how many of the newest rounds keep all their updates; of older ones only every
            ``unlearning.interval``-th does. None keeps all.
    """

    federation: str
    n_features: int
    policy: RoundPolicy = field(default_factory=RoundPolicy)
    training: Training = field(default_factory=PdgdTraining)
    chosen_ranker: Ranker | None = None
    schema: FeatureSchema | None = None
    first_weights: bytes | None = None
    seed: int | None = None
    stop_after_round: int | None = None
    resume_grace_s: float = 5.0
    database_patience_s: float = 60.0
    enrolment_key: TrustedOperatorKey | None = None
    key_sequence: int = 0
    unlearning: UnlearningPolicy = field(default_factory=UnlearningPolicy)
    history_rounds: int | None = None
    anchor: bool = False
    evaluation: bool = False
    secure: SecureSettings | None = None
    pace: PacePolicy | None = None

    def __post_init__(self) -> None:
        check_name("federation", self.federation)
        policy = self.policy
        if self.ranker.n_features != self.n_features:
            raise SettingsError(f"n_features: {self.n_features}, but the ranker's are {self.ranker.n_features}")
        if self.schema is not None and self.schema.n_features != self.n_features:
            raise SettingsError(f"n_features: {self.n_features}, but the schema has {self.schema.n_features}")
        if self.first_weights is not None and len(self.first_weights) != 4 * self.ranker.n_weights:
            raise SettingsError(
                f"initial_model: {len(self.first_weights) / 4:g} weights; the ranker has {self.ranker.n_weights}"
            )
        check_method(self.training, self.ranker)
        method = spec_of(self.training)
        if method.needs_deadline is not None and policy.pacing is Pacing.BUFFERED:
            raise SettingsError(f"pacing: {method.name} needs deadline; {method.needs_deadline}")
        check_rule(self.training, policy.rule)
        if self.n_values > MAX_DIM:
            raise SettingsError(f"n_features: {self.n_values} values in a model, which has at most {MAX_DIM}")
        if policy.max_clients < policy.min_clients:
            raise SettingsError(f"max_clients: {policy.max_clients} is below min_clients ({policy.min_clients})")
        if self.secure is None:
            self._check_rule_is_of_use()
        else:
            check_secure(policy, self.training, is_signed=self.enrolment_key is not None)
            self.check_policy(self.secure.policy.policy)
        if not policy.min_time_s <= policy.max_time_s:
            raise SettingsError(f"min_time_s: {policy.min_time_s:g} is above max_time_s ({policy.max_time_s:g})")
        if policy.over_selection is not None and policy.pacing is Pacing.BUFFERED:
            raise SettingsError("over_selection: it needs pacing = deadline; a buffer takes every client")
        if self.pace is not None and policy.over_selection is not None:
            raise SettingsError(
                "over_selection: it chooses among connected devices, and with updates_per_round devices do not "
                "stay connected"
            )
        if self.pace is not None and self.pace.updates_per_round != policy.max_clients:
            raise SettingsError(
                f"updates_per_round: {self.pace.updates_per_round} is not max_clients ({policy.max_clients}), with "
                "which a round ends; leave max_clients out"
            )

    @cached_property
    def ranker(self) -> Ranker:
        """The chosen ranker, or the default linear one."""
        return self.chosen_ranker or LinearRankerSpec(n_features=self.n_features)

    def with_activation(self, stored: Activation | None) -> "FederationPlan":
        """Return the plan of an existing federation.

        A method's default may change from one version to the next; a federation keeps what it has.

        Args:
            stored: that of its hidden units; None for a linear ranker.
        """
        if not isinstance(self.ranker, NeuralRankerSpec) or stored not in spec_of(self.training).activations:
            return self
        return replace(self, chosen_ranker=self.ranker.model_copy(update={"activation": stored}))

    @property
    def schema_hash(self) -> bytes | None:
        return None if self.schema is None else self.schema.hash

    @property
    def privacy(self) -> Privacy:
        return Privacy.TRUSTED if self.secure is None else Privacy.SECURE

    def no_votes_because(self, policy: Policy | None) -> str | None:
        """Why devices do not vote although the settings ask for it; None if they do, or need not.

        Args:
            policy: the operator's newest; None in a trusted federation.
        """
        if not self.anchor:
            return None
        if policy is not None and policy.votes is None:
            return f"policy {policy.version} has no votes in its sums; for one that has: {NEW_POLICY} --votes"
        return spec_of(self.training).no_votes_because

    def asks_for_votes(self, policy: Policy | None) -> bool:
        """Whether devices compare the newest model with an anchor, in rounds under this policy."""
        return self.anchor and self.no_votes_because(policy) is None

    def no_evaluation_because(self, policy: Policy | None) -> str | None:
        """Why devices do not report rewards although the settings ask for it; None if they do, or need not.

        Args:
            policy: the operator's newest; None in a trusted federation.
        """
        if not self.evaluation:
            return None
        if policy is not None and policy.evaluation is None:
            return f"policy {policy.version} does not ask in its sums; for one that does: {NEW_POLICY} --evaluation"
        return spec_of(self.training).no_evaluation_because

    def keeps_evaluation(self, policy: Policy | None) -> bool:
        """Whether the evaluations of rounds under this policy, or under none, are stored."""
        return self.evaluation and self.no_evaluation_because(policy) is None

    @property
    def asks_for_evaluation(self) -> bool:
        """Whether devices report their lists' rewards beside updates that the federator sees."""
        return self.secure is None and self.keeps_evaluation(None)

    def check_policy(self, policy: Policy) -> None:
        """Raise SettingsError, with an explanation, if a policy of the operator does not fit these settings."""
        if policy.federation != self.federation:
            raise SettingsError(f"privacy: the policy is of federation {policy.federation!r}, not {self.federation!r}")
        check_policy(policy, self.policy, self.training, self.n_values)
        if self.secure is not None:
            self.secure.verify_key(policy)

    def _check_rule_is_of_use(self) -> None:
        policy = self.policy
        sizes = range(policy.min_clients, policy.max_clients + 1)
        if all(rule_problem(policy.rule, n) is not None for n in sizes):
            raise SettingsError(
                f"aggregation: {rule_problem(policy.rule, policy.max_clients)}, the most that a round has (max_clients)"
                "; " + remedies(policy.rule, policy.max_clients, "raise max_clients")
            )

    @property
    def rule_warning(self) -> str | None:
        """Describe which rounds the rule cannot be used for, and what happens to them; None if it always can."""
        policy = self.policy
        sizes = range(policy.min_clients, policy.max_clients + 1)
        if self.secure is not None:
            sizes = range(1, self.secure.policy.policy.cohorts + 1)  # a rule gets sums
        # A share of the clients is rounded up to a whole number, so one more client can be one too few.
        short = [n for n in sizes if shortfall(policy.rule, n) is not None]
        if not short:
            return None
        if self.secure is not None:
            return f"{shortfall(policy.rule, short[0])}: a round of {_in_words(short)} sums is abandoned"
        then = "abandoned" if policy.rule.fallback == ABANDON else f"aggregated by {policy.rule.fallback}"
        return f"{shortfall(policy.rule, short[0])}: a round of {_in_words(short)} updates is {then}"

    @property
    def n_values(self) -> int:
        """How many values a model has: the ranker's weights, and those used only in training."""
        return self.ranker.n_weights + n_auxiliary(self.training, self.ranker)


def _in_words(numbers: list[int]) -> str:
    """Format rising numbers with neighbours joined: ``2 to 4 or 6``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " or ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
