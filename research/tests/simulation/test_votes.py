"""A simulated federation whose clients vote: what a majority takes back, and what liars cannot."""

import numpy as np
import pytest
from simulated import check_resumed, config, population, simulated

from foltr.core.aggregation.client_records import ClientRecords
from foltr.core.aggregation.vote_result import VoteResult
from foltr.core.errors import SettingsError
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.clients.voters import Voters
from foltr_research.simulation.config import resolve, rule_of
from foltr_research.simulation.learners import Defence, Federation
from foltr_research.simulation.results import rows_of
from foltr_research.simulation.runners import ReferenceRunner

# Honest while the model learns, and then far stronger than the others together.
RUINED = {"attack": "turncoat", "attackers": 2, "attack_parameters": {"start": 12, "z": 30}}


def voting(**values):
    return config(interactions=20, rounds=30, eval_every=1, take_back=True, **values)


def decisions(result, verdict):
    return [made for made in result.robustness["decisions"] if made["verdict"] == verdict]


def test_a_ruined_model_is_taken_back_by_the_honest_majority():
    """Though the others vote to shield it; the anchor that takes its place is a model that has learned."""
    plain, voted = (simulated(voting(**RUINED).changed(take_back=on)) for on in (False, True))
    taken = decisions(voted, "take_back")
    assert taken
    assert all(2 * made["n_worse"] > made["n_updates"] for made in taken)
    assert all(made["round"] > 12 for made in taken)
    ndcg = dict(voted.ndcg_at_10)
    moved = [made["round"] for made in decisions(voted, "move_anchor") if made["round"] < taken[0]["round"]]
    # The anchor is the model that was voted on: what the round before had made.
    assert ndcg[taken[0]["round"]] == ndcg[moved[-1] - 1] > 0.9
    assert max(ndcg[i] for i in range(25, 31)) > max(dict(plain.ndcg_at_10)[i] for i in range(25, 31)) + 0.2
    assert rows_of(voted.to_dict())[-1]["models_taken_back"] == len(taken)


def test_without_a_decision_a_run_is_the_same_run():
    """Comparing costs no click and changes no random number; blocks compare nothing."""
    with_votes, without = simulated(voting()), simulated(voting().changed(take_back=False))
    assert not decisions(with_votes, "take_back")
    assert decisions(with_votes, "move_anchor")
    assert np.array_equal(with_votes.weights, without.weights)
    assert with_votes.ndcg_at_10 == without.ndcg_at_10
    with pytest.raises(SettingsError, match="not run in blocks"):
        simulated(voting(), runner="block")


@pytest.mark.parametrize("lie", ["worse", "better", "honest"])
def test_liars_alone_take_nothing_back(lie):
    """They need no attack: two of five learn honestly and vote as they like."""
    lied = simulated(voting(attackers=2, liars_vote=lie))
    assert not decisions(lied, "take_back")
    assert lied.robustness["attackers"] == ["device-001", "device-002"]


class Scripted(Voters):
    """Voters who take the model back in one round, and move the anchor in another."""

    def take_votes(self, number, senders):
        super().take_votes(number, senders)
        return VoteResult(5, 5, 5 * (number == 6), 5 * (number == 3))


def test_what_a_rule_remembers_of_clients_outlives_the_model():
    """The evidence of the rounds before stays; the progress is that of the anchor again."""
    of = config(aggregation="adaptive")
    people, (training, ranker) = population(of), resolve(of, 8)
    crowd, first = Crowd(people, of.seed, training.serp_length), np.zeros(8, np.float32)
    voters = Scripted(ranker, first, frozenset(), None)
    runner = ReferenceRunner(people, crowd, training, ranker, voters=voters)
    learner = Federation(people, runner, training, ranker, first, of.seed, None, Defence(rule_of(of), voters=voters))
    kept = {}
    for number in range(1, 7):
        learner.round(number)
        state = learner.state()
        kept[number] = ClientRecords.from_bytes(state["defence"].tobytes(), 8), state["model"]
    (anchors, anchor), (before, _), (after, model) = kept[2], kept[5], kept[6]
    assert np.array_equal(model, anchor)
    assert np.array_equal(after.progress, anchors.progress)
    assert after.n_rounds == before.n_rounds == 5
    assert np.array_equal(after.clients, before.clients)


@pytest.mark.parametrize("extra", [RUINED, {"aggregation": "adaptive"}, {"participants": 4}])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, extra):
    """Comparisons, votes and the anchor are part of a checkpoint."""
    check_resumed(voting(**extra), tmp_path / "run.checkpoint", after=14)
