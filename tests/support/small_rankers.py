"""What the tests of methods share: small rankers, one training of each method, a user who clicks."""

import numpy as np
from support.sampled_lists import interaction_of, sampled, shown_by

from foltr.core.methods.registry import METHODS
from foltr.core.protocol.trainings import LinearRankerSpec, NeuralRankerSpec

LINEAR = LinearRankerSpec(n_features=6)
NEURAL = NeuralRankerSpec(n_features=6, hidden=3)
RANKERS = (LINEAR, NEURAL)


def trainings(interactions=4, **parameters):
    """Method to settings."""
    required = {"fpdgd-paper": {"n_clients": 3}}
    return {name: sampled(name, {**required.get(name, {}), **parameters}, interactions) for name in METHODS}


def see(device, training, rng, base_version=0, n=None, k=4):
    """Show ``n`` lists and click the document with the largest first feature among those shown, and the next one."""
    for i in range(training.min_interactions if n is None else n):
        features = rng.random((12, 6)).astype(np.float32)
        shown, variant = shown_by(device, training, features, k, rng)
        order = np.argsort(-features[shown.ranking, 0])
        clicks = np.zeros(len(shown.ranking), np.bool_)
        clicks[order[:2]] = True
        device.learn(interaction_of(i, features, shown, clicks, variant, base_version), rng)
