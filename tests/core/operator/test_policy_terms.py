"""What an operator asks of a policy: the defaults, what cannot be had, and what it costs in words."""

import math
from dataclasses import replace

import pytest
import support.secure_policies

from foltr.core.errors import SettingsError
from foltr.core.operator.policy_terms import PolicyTerms, costs_in_words, policy_of
from foltr.core.protocol.policies import GammaNoise, SecureEvaluation, SecureVotes, least_noise
from foltr.core.protocol.verify_keys import open_verify_key
from foltr.core.secure.accounting import default_vote_weight
from foltr.core.secure.sealing import SealingKey

HELPERS = tuple(support.secure_policies.HELPERS)
TERMS = PolicyTerms(HELPERS)
BARE = {"norm_proof": "none"}
FEDERATOR = SealingKey(bytes(range(32)))


def policy(**changed):
    return policy_of(replace(TERMS, **changed), "mail", 1, 1000.0, FEDERATOR.public)


def words(clients=1000, **changed):
    return "\n".join(costs_in_words(policy(clients=clients, **changed), clients))


def test_the_defaults_are_those_of_the_plan():
    """Noise of 3.337 C_int: 3.083 and what votes, evaluations and credits need."""
    made = policy()
    assert (made.federation, made.version, made.issued_at, list(HELPERS)) == ("mail", 1, 1000.0, made.helpers)
    assert (made.epsilon, made.delta, made.max_participations, made.period) == (8.0, 1e-6, 20, 10)
    assert (made.dim, made.bound, made.n_interactions) == (136, 256, 5)
    assert (made.cohorts, made.n_min, made.n_max) == (1, 100, 100_000)
    assert math.sqrt(made.noise.variance) / 256 == pytest.approx(3.337, abs=0.001)
    voting, plain = policy(evaluation=False), policy(votes=False, evaluation=False)
    assert math.sqrt(voting.noise.variance) / 256 == pytest.approx(3.178, abs=0.001)
    assert math.sqrt(plain.noise.variance) / 256 == pytest.approx(3.083, abs=0.001)
    assert made.norm_proof is not None
    assert (made.votes, made.evaluation) == (SecureVotes(weight=64), SecureEvaluation(weight=32, credit_weight=64))


def test_each_policy_has_a_verify_key_of_its_own():
    """Drawn here, sealed to each helper and to the federator alone; without norm proofs there is none."""
    keys = [SealingKey(bytes([i]) * 32) for i in (1, 2)]
    helpers = tuple(
        each.model_copy(update={"sealing_key": key.public}) for each, key in zip(HELPERS, keys, strict=True)
    )
    made = [policy(helpers=helpers) for _ in range(2)]
    opened = [[open_verify_key(one, i, key) for i, key in enumerate(keys)] for one in made]
    assert [{*each, open_verify_key(one, None, FEDERATOR)} for one, each in zip(made, opened, strict=True)] == [
        {opened[0][0]},
        {opened[1][0]},
    ]
    assert opened[0][0] != opened[1][0]
    assert len(opened[0][0]) == 32
    assert policy(**BARE).norm_proof is None
    assert policy_of(replace(TERMS, **BARE), "mail", 1, 1000.0).norm_proof is None
    with pytest.raises(SettingsError, match="foltr federator rotate-key, or choose --norm-proof none"):
        policy_of(TERMS, "mail", 1, 1000.0)


def test_the_noise_is_a_millionth_more_than_the_least():
    """So another machine's logarithm does not find it too little. Weights: a quarter, an eighth of the bound."""
    least = least_noise(policy())
    assert least < policy().noise.variance <= least + least / 10**6 + 1
    assert policy(mechanism="gamma").noise.scale == least_noise(policy(mechanism="gamma")) == 641
    assert policy(mechanism="gamma", **BARE).noise.scale == 640
    for changed, vote_weight, evaluation_weight in [
        ({}, 64, 32),
        ({"votes": True, "evaluation": True}, 64, 32),
        ({"dim": 20_000}, 141, 70),
        ({"votes": False}, 0, 32),
        ({"evaluation": False}, 64, 0),
        ({"mechanism": "gamma"}, 0, 0),
        ({"norm_proof": "none"}, 0, 0),
    ]:
        made = policy(**changed)
        assert (made.vote_weight, made.evaluation_weight) == (vote_weight, evaluation_weight), changed
        assert made.credit_weight == (default_vote_weight(made.bound) if evaluation_weight else 0), changed


def test_what_is_said_takes_the_place_of_a_default():
    """n_min follows from the cohorts, of which there are 20 of 400 clients without proofs; they share the noise."""
    made = policy(cohorts=5, n_max=500, interactions=7, participations=4)
    assert (made.cohorts, made.n_min, made.n_max, made.n_interactions) == (5, 10, 500, 7)
    assert (made.max_participations, made.period) == (4, 50)
    assert policy(n_min=12).n_min == 12
    by_clients = {"mechanism": "gamma", "noise_by": "clients", **BARE}
    assert policy(**by_clients).noise == GammaNoise(scale=640, n_shares=90)
    assert policy(**by_clients, shares=50).noise.n_shares == 50
    assert policy(**by_clients, clients=4000).noise.n_shares == 9
    assert "10 may" in words(**by_clients)
    for clients, rounds, expected in [
        (1000, 200, (1, 100)),
        (3999, 200, (1, 100)),
        (4000, 200, (20, 10)),
        (400, 20, (20, 10)),
        (399, 20, (1, 100)),
    ]:
        made = policy(clients=clients, rounds=rounds, **BARE)
        assert (made.cohorts, made.n_min) == expected, (clients, rounds, expected)
        proven = policy(clients=clients, rounds=rounds)
        assert (proven.cohorts, proven.n_min) == (1, 100), (clients, rounds, expected)


def test_terms_that_no_policy_can_have_are_refused():
    for changed, named in [
        ({"noise_by": "clients"}, "gamma"),
        ({"votes": True, "mechanism": "gamma"}, "--mechanism gaussian, or --no-votes"),
        ({"evaluation": True, "mechanism": "gamma"}, "--mechanism gaussian, or --no-evaluation"),
        ({"shares": 5}, "shares"),
        ({"mechanism": "gamma", "shares": 5}, "shares"),
        ({"delta": 1e-11}, "choose a larger delta"),
        ({"dim": 480_000, "n_max": 1000}, "--norm-proof none, or a smaller --dim"),
        ({"helpers": HELPERS[:1]}, "helper: 1 given; a policy names 2 to 8"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"participations": 0}, "participations"),
        ({"rounds": 0}, "rounds"),
        ({"dim": 10**6, "n_max": 2**31 - 1, "participations": 10**9, "rounds": 10**9, **BARE}, "variance"),
        ({"mechanism": "gamma", "noise_by": "clients", "participations": 10**4, "rounds": 10**4, **BARE}, "scale"),
    ]:
        with pytest.raises(SettingsError) as caught:
            policy(**changed)
        assert named in str(caught.value), (changed, named)
        assert "\n" not in str(caught.value), (changed, named)


def test_the_costs_have_their_figures():
    """What is promised, who takes part; each cohort's helpers add all of the noise, the shares of clients one."""
    said = words(2000)
    for figures in (
        "epsilon 8 with delta 1e-06 for 20 participations of a device in its life, of 5 interactions each",
        "epsilon 18.4 with delta 1e-06",
        "of 2,000 devices about 200 take part in a round (period 10), in one cohort of 100 or more",
        "noise 1.6 times a typical mean update: learns as without noise",
        "the noise is 3% longer for it; in a round of about 200 devices noise moves each count of votes by about 19",
        "the sum has what each device's lists earned and credited, and the noise is 5% longer for it; in a round of",
        "noise moves the mean reward by about 0.19",
        "within 336 hours; there are keys for 1 times 168 hours, so the policy ends on 1970-01-08",
    ):
        assert figures in said
    without = words(2000, votes=False, evaluation=False)
    assert "(--no-votes)" in without
    assert "(--no-evaluation)" in without
    ratio = {"helpers": words(2000).split("noise ")[1].split()[0]}
    ratio["cohorts"] = words(2000, cohorts=4).split("noise ")[1].split()[0]
    assert float(ratio["cohorts"]) == pytest.approx(2 * float(ratio["helpers"]), rel=0.05)
    by_helpers = float(words(2000, mechanism="gamma").split("noise ")[1].split()[0])
    shared = words(2000, mechanism="gamma", noise_by="clients", shares=100, **BARE)
    by_clients = float(shared.split("noise ")[1].split()[0])
    assert by_clients == pytest.approx(by_helpers, rel=0.05)  # 200 clients of which 100 are enough, and two helpers


def test_gamma_promises_a_pure_epsilon():
    """After others it is pure only for who has spent nothing else; hostile devices and hopeless rounds are said."""
    assert words(mechanism="gamma", **BARE).startswith("epsilon 8 for 20 participations")
    assert words(mechanism="gamma").startswith("epsilon 8 with delta 1e-06 for 20 participations")
    made = policy(mechanism="gamma", **BARE)
    said = "a device that has taken part with gaussian noise or norm proofs before has the promise with delta 1e-06"
    assert said not in costs_in_words(made, 1000)
    assert said in costs_in_words(made.model_copy(update={"version": 2}), 1000)
    assert said not in costs_in_words(policy().model_copy(update={"version": 2}), 1000)
    assert "a hostile vector may be 8.7 times as long in it as gamma's honest ones" in words(mechanism="gamma")
    assert "one can spoil its cohort's sum (--norm-proof none)" in words(**BARE)
    assert "48% of cohorts have fewer than 100" in words(1000)
    assert "not opened" not in words(2000)
    assert "100% of cohorts have fewer than 100" in words(50, rounds=20)
    assert "100% of cohorts have fewer than 100" in words(5)
    assert "hopeless: the noise drowns the updates" in words(20, mechanism="gamma", rounds=20, n_min=2)
    assert "some rounds have nobody" in words(5)
