"""What a device says of itself, and whose order it shows, is what it does."""

import asyncio
from itertools import product

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.device_options import grouped
from support.device_under_policy import FEDERATOR, identity
from support.federator_by_hand import N_FEATURES, Federator, announced, model
from support.small_rankers import LINEAR, trainings
from support.waiting import until

from foltr.core.learning.gate import FadingMean, Gate, Source, source_of_next
from foltr.core.methods.base import DeviceContext
from foltr.core.protocol.explorations import read_exploration
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.device_state import ListOrder, order_of_next
from foltr.edge_client.search_ranker import SearchRanker
from foltr.edge_client.serps import make_serp, read_candidates
from foltr.edge_client.training.working_model import WorkingModel, device_for

CANDIDATES = read_candidates(np.random.default_rng(4).random((12, LINEAR.n_features)), None)
PROMISING = Gate(credits=FadingMean(weight=10.0, weight_squares=10.0, total=1.0))
OPEN = Gate(is_open=True)
N_LISTS = 2000


def working_model(weights=1.0, method="fpdgd", exploration="none"):
    newest = announced(3, weights * np.linspace(-1.0, 1.0, LINEAR.n_features))
    training = trainings()[method].model_copy(update={"exploration": read_exploration(exploration)})
    return WorkingModel(newest, training, device_for(newest, training, DeviceContext(1)))


class Gated:
    def __init__(self, gate, rng):
        self._gate, self._rng = gate, rng

    def source_of_next(self, *, may_interleave):
        if not may_interleave:
            return Source.MODEL if self._gate.is_open else Source.BASE
        return source_of_next(self._gate, self._rng)


@pytest.mark.parametrize(
    "ranks",
    [
        None,
        working_model(),
        working_model(0.0),
        working_model(method="foltr-es"),
        working_model(exploration="interleaving"),
    ],
    ids=["no model", "model", "model of zeros", "a method's own lists", "all interleaved"],
)
def test_the_order_that_is_said_is_the_order_that_is_shown(ranks):
    """By counting lists: whose they are, and how many are mixed."""
    for gate, exploration in product([None, Gate(), PROMISING, OPEN], [None, "none", "swaps:0.1", "interleaving"]):
        check_order(ranks, gate, exploration)


def check_order(ranks, gate, exploration):
    asked = None if exploration is None else read_exploration(exploration)
    said = order_of_next(ranks, asked, gate)
    rng = np.random.default_rng(1)
    deciding = None if gate is None else Gated(gate, rng)
    n_lists = N_LISTS if 0.0 < said.share_interleaved < 1.0 else 20
    sources = [make_serp(CANDIDATES, 3, ranks, rng, exploration=asked, gate=deciding).source for _ in range(n_lists)]
    share = sources.count(Source.INTERLEAVED) / n_lists
    # Four standard deviations of what is drawn; where nothing is, none.
    assert abs(share - said.share_interleaved) <= 4 * np.sqrt(said.share_interleaved * (1 - share) / n_lists), (
        gate,
        exploration,
    )
    assert set(sources) - {Source.INTERLEAVED} <= {said.source}, (gate, exploration)


@pytest.mark.parametrize(
    ("options", "order"),
    [
        ({}, ListOrder(Source.BASE, 0.05)),
        ({"gate": False}, ListOrder(Source.MODEL)),
        ({"gate": False, "n_features": N_FEATURES + 1}, ListOrder(Source.BASE)),
    ],
    ids=str,
)
async def test_a_ranker_says_whose_order_it_shows(mqtt_broker, path, options, order):
    """From the first model on; also if that cannot rank what the application has; it says so, or clicks show it."""
    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        ranker = await asyncio.to_thread(SearchRanker, identity(broker=mqtt_broker), store=path, **grouped(**options))
        assert ranker.state.order == ListOrder(Source.BASE)
        # A model that says something.
        liked = model(3).model_copy(update={"weights": pack_vector(np.linspace(0.0, 1.0, N_FEATURES))})
        await federator.announce(1, newest=liked, training=PdgdTraining(min_interactions=1000, max_interactions=1000))
        await until(lambda: ranker.state.model_version == 3)
        assert (ranker.state.order, ranker.state.model_version) == (order, 3)
        assert f"model 3: lists are in {order}" in str(ranker.state)
        if order.source is Source.MODEL:
            ranker.record_clicks(ranker.rank(np.eye(3)), [0])
            await until(lambda: ranker.state.order == ListOrder(Source.BASE))
        await asyncio.to_thread(ranker.close)


def test_features_far_from_what_learning_is_made_for_are_said_once(nowhere, path):
    """With the column, its range and what to do; the list is made all the same, and enrolling says nothing again."""
    rows = np.array([[0.5, 3.0, 0.0], [0.2, -250.5, 1.2]])
    with capture_logs() as logs, SearchRanker(store=path) as ranker:
        assert ranker.rank(np.clip(rows, -0.01, 1.01)).ranking.shape == (2,)
        assert ranker.state.remarks == ("clicks are kept in the store",)
        for _ in range(3):
            assert ranker.rank(rows, exploration="none").ranking.tolist() == [0, 1]
        ranker.enrol(identity(broker=nowhere))
        ranker.rank(1000 * rows)
        (remark,) = ranker.state.remarks
    assert remark.startswith(
        "features: column 1 has values from -250.5 to 3, but learning needs values from 0 to 1: give a"
    )
    assert [entry["cause"] for entry in logs if entry["event"] == "features_out_of_range"] == [remark]


def test_what_a_schema_scales_is_in_range(path):
    """So it says nothing."""
    schema = path.with_name("shop.json")
    schema.write_text(
        """{"name": "shop", "version": 1, "features": [
        {"name": "price", "scaling": "min_max", "low": 0, "high": 500}, {"name": "clicks", "scaling": "ratio"}]}"""
    )
    with SearchRanker(store=path, schema=schema) as ranker:
        ranker.rank([[100.0, 7.0], [900.0, -3.0]])
        assert ranker.state.remarks == ("clicks are kept in the store",)
