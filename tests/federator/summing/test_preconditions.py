"""A federation that cannot have secure sums is refused at start, in words that say what to do next."""

import pytest
from support.secure_cohorts import SecureFederation

from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.errors import SettingsError
from foltr.core.protocol.explorations import SamplingExploration
from foltr.core.protocol.policies import GaussianNoise
from foltr.core.protocol.states import Pacing, Privacy
from foltr.core.protocol.trainings import EvolutionTraining, FpdgdPaperTraining, PdgdTraining
from foltr.core.secure.sealing import SealingKey
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.secure_terms import SecureSettings

FEW = SecureFederation(dim=1, n_min=2, n_max=10_000, n_interactions=1)
ONE = PdgdTraining(min_interactions=1, max_interactions=1)
ONE_EACH = {"n_min": 2, "n_max": 10_000, "n_interactions": 1}
ROUNDS = {"min_clients": 40, "max_clients": 100}


def plan_of(*, training=ONE, secure=None, enrolment_key=FEW.operator.public, policy=None, **rounds) -> FederationPlan:
    secure = secure or SecureSettings(FEW.issue(**ONE_EACH | (policy or {})))
    policy_of_rounds = RoundPolicy(**(ROUNDS | rounds))
    return FederationPlan("mail", 1, policy_of_rounds, training, enrolment_key=enrolment_key, secure=secure)


def test_a_federation_has_secure_sums_only_where_it_is_told_to():
    """The mean of one sum, or a rule across twenty; the others stay trusted."""
    assert plan_of().privacy is Privacy.SECURE
    twenty = plan_of(policy={"cohorts": 20}, rule=read_rule("median"))
    assert twenty.rule_warning is not None
    assert "a round of 1 to 2 sums is abandoned" in twenty.rule_warning
    assert FederationPlan("mail", 1).privacy is Privacy.TRUSTED


def test_what_secure_sums_cannot_go_with_is_refused_in_words():
    """Before anything is stored or announced."""
    for told, changes in [
        ("privacy: secure needs clients that the operator has enrolled", {"enrolment_key": None}),
        ("privacy: secure needs pacing = deadline", {"pacing": Pacing.BUFFERED}),
        ("privacy: foltr-es sends", {"training": EvolutionTraining(antithetic=False, min_interactions=1)}),
        ("privacy: fpdgd-paper adds noise itself", {"training": FpdgdPaperTraining(n_clients=5)}),
        (
            "aggregation: median compares sums, and the policy has one .* foltr policy new .* --cohorts 20",
            {"rule": read_rule("median")},
        ),
        ("privacy: the rule adaptive judges each client by its history", {"rule": read_rule("adaptive")}),
        (
            "privacy: the rule adaptive judges each client by its history",
            {"rule": read_rule("adaptive", parameters={"differing": "1"})},
        ),
        (
            "aggregation: a round has 2 sums: krum needs",
            {"rule": read_rule("krum", byzantine=1), "policy": {"cohorts": 2}},
        ),
        ("privacy: the policy is for updates of 2 numbers, but a model has 1", {"policy": {"dim": 2}}),
        ("privacy: the policy is of federation 'web', not 'mail'", {"policy": {"federation": "web"}}),
        ("interactions: 5 an update, .* choose interactions = 1", {"training": PdgdTraining()}),
        ("interactions: 1 to 2 an update", {"training": PdgdTraining(min_interactions=1, max_interactions=2)}),
        (
            "min_clients: 40 are too few for 1 cohort of at least 41 .* raise min_clients to 41",
            {"policy": {"n_min": 41}},
        ),
        ("min_clients: 40 are too few for 5 cohorts of at least 10", {"policy": {"n_min": 10, "cohorts": 5}}),
        (
            "max_time: a round of 600 s, .* an epoch of 1,199 s .* foltr policy new .* --epoch-hours HOURS",
            {"policy": {"epoch_s": 1199}},
        ),
        ("max_clients: 100 may all be in one cohort, .* more than 99", {"policy": {"n_max": 99}}),
    ]:
        with pytest.raises(SettingsError, match=f"^{told}"):
            plan_of(**changes)


def test_a_policy_whose_verify_key_it_cannot_open_is_refused():
    """The federator would ask for proofs that it cannot check; with the key, also a former one, it goes on."""
    policy = FEW.issue(proofs=True, **ONE_EACH)
    key, other = FEW.federator_sealing_key, SealingKey.generate()
    for keys in ((), (other,)):
        with pytest.raises(SettingsError, match="privacy: policy 1 asks for norm proofs"):
            plan_of(secure=SecureSettings(policy, sealing_keys=keys))
    secure = SecureSettings(policy, sealing_keys=(other, key))
    assert plan_of(secure=secure).secure.terms(policy, ONE).verify_key == FEW.verify_key
    assert secure.terms(FEW.issue(**ONE_EACH), ONE).verify_key is None
    assert FEW.verify_key.hex() not in repr(secure.terms(policy, ONE))
    assert repr(FEW.verify_key) not in repr(secure.terms(policy, ONE))


def test_one_helper_or_sums_of_more_than_62_bits_are_no_policy():
    """Nobody can be told of one: it is refused where it is made and where it is read."""
    with pytest.raises(ValueError, match="at least 2 items"):
        FEW.issue(helpers=[FEW.helpers[0].public])
    with pytest.raises(ValueError, match="more than 62 bits"):
        FEW.issue(n_max=2**31 - 1, bound=2**31 - 1, noise=GaussianNoise(variance=2**50))


def test_the_clip_norm_follows_from_interactions_and_learning_rate():
    """0.15 sqrt(B) (learning rate / 0.1), a fifth of it where lists are hardly explored, unless one is set."""
    policy = FEW.issue(n_interactions=4)
    sampled = PdgdTraining(learning_rate=0.2, exploration=SamplingExploration())
    assert SecureSettings(policy).terms(policy, sampled).clip_norm == pytest.approx(0.15 * 2 * 0.2 / 0.1)
    assert SecureSettings(policy).terms(policy, PdgdTraining(learning_rate=0.2)).clip_norm == pytest.approx(0.12)
    assert SecureSettings(policy, clip_norm=3.0).terms(policy, ONE).announced.clip_norm == 3.0
