"""Lists for tests of learning: shown as a method shows them, or as if they had been drawn."""

import numpy as np

from foltr.core.learning.display import plackett_luce_log_odds, reversal_weights
from foltr.core.learning.interaction import Interaction
from foltr.core.methods.lists import make_list
from foltr.core.methods.registry import draws_lists, training_for
from foltr.core.protocol.explorations import SamplingExploration


def sampled(method, parameters, interactions):
    """Return the settings of a method whose lists are samples, as in the papers, where it draws them at all."""
    return training_for(method, parameters, interactions, SamplingExploration() if draws_lists(method) else None)


def even_reversals(k):
    """Return the reversals of a list of ``k`` that was as likely as any other order of it."""
    return np.full(k * (k - 1) // 2, 0.5)


def reversals_of(scores, ranking):
    """Return the reversals of a list that was drawn from the Plackett-Luce model of the scores."""
    return reversal_weights(plackett_luce_log_odds(np.asarray(scores), np.asarray(ranking))[1])


def shown_by(device, training, features, k, rng):
    scores, variant = device.scores(features, exploring=True)
    return make_list(training, scores, k, rng), variant


def interaction_of(i, features, shown, clicks, variant=0, base_version=None):
    seen = (features, shown.ranking, clicks, variant, base_version)
    return Interaction(i, *seen, shown.reversals, shown.log_probability)
