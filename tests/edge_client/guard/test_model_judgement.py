"""The guard's judgement: what it takes to refuse a model, and what is never refused."""

import math

import numpy as np
import pytest
from drawn import reversals_of

from foltr.core.data.synthetic import synthetic_dataset
from foltr.core.evaluation.click_models import click_model, simulate_clicks
from foltr.core.learning.agreement import agreement, preferences
from foltr.core.learning.linear import sample_plackett_luce, score
from foltr.core.learning.pdgd import pdgd_step
from foltr.edge_client.guard.model_judgement import FEWEST_LISTS, MARGIN, judge

K, D = 10, 12


def test_the_loss_and_its_standard_error_are_those_of_a_ratio_of_sums():
    """By hand, for weights 1 and 3 and losses 1 and 0: D = 1/4, and the residuals are 3/4 and -3/4."""
    judgement = judge(np.array([1.0, 3.0, 0.0]), np.array([1.0, 0.5, 9.0]), np.array([0.0, 0.5, 9.0]))
    assert (judgement.n_lists, judgement.loss, judgement.kept) == (2, 0.25, (1 + 1.5) / 4)
    assert judgement.standard_error == pytest.approx(math.sqrt(2 / 1 * (0.75**2 + 0.75**2)) / 4)


@pytest.mark.parametrize(
    ("n_lists", "loss", "noise", "refused"),
    [
        pytest.param(FEWEST_LISTS, 1.0, 0.0, True, id="worse in every list"),
        pytest.param(FEWEST_LISTS - 1, 1.0, 0.0, False, id="too few lists"),
        pytest.param(200, MARGIN / 2, 0.0, False, id="worse, but not far"),
        pytest.param(200, MARGIN * 2, 0.8, False, id="far worse, but perhaps by chance"),
        pytest.param(200, -1.0, 0.0, False, id="better"),
    ],
)
def test_what_it_takes_to_refuse(n_lists, loss, noise, refused):
    """Lists enough, a loss that is large, and that is not chance."""
    swing = noise * np.where(np.arange(n_lists) % 2, 1.0, -1.0)
    judgement = judge(np.ones(n_lists), np.full(n_lists, loss) + swing, np.zeros(n_lists))
    assert judgement.refused is refused


def test_without_a_list_nothing_is_refused():
    """Nor with lists that say nothing."""
    assert not judge(np.zeros(0), np.zeros(0), np.zeros(0)).refused
    assert not judge(np.zeros(99), np.ones(99), np.zeros(99)).refused


class Federation:
    """A federation of honest devices, and what one of them holds back; like ``foltr.core.methods``, in twenty lines."""

    def __init__(self, clicks, seed, n_rounds):
        rng = np.random.default_rng(seed)
        dataset = synthetic_dataset(np.random.default_rng(7), 150, (8, 30), n_features=D)
        model, self.held = click_model(clicks, 5), []
        self.models = [np.zeros(D)]
        self._agreements = {}
        for _ in range(n_rounds):
            learned = []
            for device in range(5):
                weights = self.models[-1].copy()
                for i in range(5):
                    features, relevance = (query := dataset.query(int(rng.integers(150)))).features, query.relevance
                    scores = score(weights, features)
                    ranking = sample_plackett_luce(scores, min(K, len(scores)), rng)
                    clicked = simulate_clicks(model, relevance[ranking], rng)
                    if device == 0 and i == 0:  # every fifth, so that few rounds are enough for a test
                        self.held.append((features[ranking], preferences(reversals_of(scores, ranking), clicked)))
                    else:
                        weights = pdgd_step(weights, features, ranking, clicked, 0.1)
                learned.append(weights - self.models[-1])
            self.models.append(self.models[-1] + np.mean(learned, axis=0))

    def judge(self, kept, new, n_held=None):
        numbers = range(len(self.held))[:n_held][-200:]
        return judge(
            np.array([self.held[number][1].total for number in numbers]),
            *(np.array([self._agreement(model, number) for number in numbers]) for model in (kept, new)),
        )

    def _agreement(self, model, number):
        # Every model is judged three times by nearly the same lists.
        asked = model.tobytes(), number
        if asked not in self._agreements:
            features, said = self.held[number]
            self._agreements[asked] = agreement(score(model, features), said)
        return self._agreements[asked]


@pytest.mark.parametrize("clicks", ["perfect", "navigational", "informational"])
def test_honest_models_are_not_refused_and_spoilt_ones_are(clicks):
    """Of 3 seeds no honest model is refused, also after ten rounds away; zeros and the reverse are, and no numbers."""
    for seed in range(3):
        federation = Federation(clicks, seed, n_rounds=210)
        models = federation.models
        for newest in range(31, len(models)):
            for kept in (newest - 1, newest - 10):
                judgement = federation.judge(models[kept], models[newest], newest)
                assert not judgement.refused, (seed, kept, newest, judgement)
        last = models[-1]
        spoilt = [-last, -0.1 * last, 0 * last, np.full(D, np.nan)]
        refused = [federation.judge(last, model).refused for model in spoilt]
        assert refused == [True] * 4, (seed, refused)
