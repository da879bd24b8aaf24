"""Devices that compare two models, against a federator that is played by hand: models, clicks, what is to be known."""

import numpy as np
from support.device_stores import stored
from support.federator_by_hand import N_FEATURES, TOPICS
from support.waiting import PATIENCE_S, until

from foltr.core.learning.agreement import agreement, preferences
from foltr.core.learning.comparison import Comparison
from foltr.core.methods.base import scores_of
from foltr.core.protocol.explorations import SamplingExploration
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining

LINEAR = LinearRankerSpec(n_features=N_FEATURES)
GOOD = np.zeros(N_FEATURES, np.float32)
GOOD[:2] = 3.0, 1.0
BAD = -GOOD
ENOUGH = 60
LATER = 2**30  # a number of the next epoch


def training(n):
    return PdgdTraining(min_interactions=n, max_interactions=n, exploration=SamplingExploration())


def search(client, n, seed=2):
    """Click n times on what `GOOD` scores highest of the five shown; return the lists and their clicks."""
    rng, recorded = np.random.default_rng(seed), []
    for _ in range(n):
        features = rng.random((12, N_FEATURES), np.float32)
        serp = client.rank(features, 5)
        best = int(np.argmax(features[serp.ranking] @ GOOD))
        client.record_clicks(serp, [best])
        recorded.append((serp, np.arange(5) == best))
    return recorded


def compared(recorded, newest, anchor, ranker=LINEAR, known=None):
    """What a device is to know after these lists, and before them."""
    known = known or Comparison()
    for serp, clicks in recorded:
        said = preferences(serp.reversals, clicks)
        of_newest, of_anchor = (
            agreement(scores_of(ranker, one, serp.features), serp.ranking, said) for one in (newest, anchor)
        )
        known = known.with_list(of_newest, of_anchor, said.total)
    return known


async def say_anchor(federator, anchor, **more):
    await federator.say(TOPICS.anchor, anchor, retain=True, **more)


async def begin(federator, client, newest, anchor, *, n=ENOUGH, number=1, **more):
    """Announce an anchor, a model and a round that takes n lists, and wait until the device has heard all three."""
    await say_anchor(federator, anchor)
    await federator.announce(number, newest=newest, **{"training": training(n), **more})
    await client.next_round(after=number - 1, timeout_s=PATIENCE_S)
    # What was said before the round was heard before it; but for the answer to the join.
    await until(lambda: client.counted_through is not None)


def is_known(path):
    """Whether a store has an anchor, and whether anything of a comparison."""
    with stored(path) as store:
        return [store.anchor() is not None, store.rows("SELECT n_lists > 0 FROM comparison") == [(1,)]]
