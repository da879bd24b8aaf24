"""A fake federation runs devices as a real one does, without a broker, in the process of an application's test."""

import asyncio
import subprocess
import sys

import numpy as np
import pytest

from foltr import EdgeClient, FeatureSchema, Ranking, SearchRanker
from foltr.core.errors import UnavailableError
from foltr.core.protocol.schemas import Feature
from foltr.testing import FakeFederation

DOCUMENTS = np.array([[1.0, 0.0], [0.0, 1.0]])


def click_second(ranker, times=3):
    for _ in range(times):
        serp = ranker.rank(DOCUMENTS)
        ranker.record_clicks(serp.serp_id, np.flatnonzero(serp.ranking == 1).tolist())


def test_all_devices_learn_in_a_round():
    """Each sends what it recorded, once, and all take the same model, which ranks what was clicked first."""
    options = {"store": ":memory:", "ranking": Ranking(gate=False)}
    # A list without a click teaches the first model nothing: to imitate its own lists would teach it its own errors.
    with FakeFederation(2) as federation, SearchRanker(federation.credentials("a"), **options) as ranker:
        ranker.record_clicks(ranker.rank(DOCUMENTS), [])
        federation.run_round()
        assert ranker.weights.tolist() == [0.0, 0.0]
    with (
        FakeFederation(2) as federation,
        SearchRanker(federation.credentials("a"), **options) as one,
        SearchRanker(federation.credentials("b"), **options) as other,
    ):
        click_second(one)
        assert (federation.run_round(), one.receipts, other.receipts) == (1, {"accepted": 1}, {})
        assert one.model_version == other.model_version == 1
        np.testing.assert_array_equal(one.weights, other.weights)
        assert other.rank(DOCUMENTS, exploration="none").ranking.tolist() == [1, 0]
        assert str(other.state) == "connected, model 1: lists are in the model's order; 1 more list makes an update"
        click_second(other)
        assert (federation.run_round(), one.n_waiting, other.n_updates_counted) == (2, 0, 1)
        assert one.weights[1] - one.weights[0] > 0


def test_a_device_goes_on_after_a_restart_with_the_store_it_had(tmp_path):
    """What was counted stays so, and what was recorded without the federation counts then."""
    with FakeFederation(2) as federation:
        credentials, path = federation.credentials("a"), tmp_path / "a.sqlite"
        with SearchRanker(credentials, store=path) as ranker:
            click_second(ranker)
            federation.run_round()
        with SearchRanker(store=path) as ranker:
            click_second(ranker, 2)
        assert federation.run_round() == 2
        with SearchRanker(credentials, store=path) as ranker:
            federation.run_round()
            assert (ranker.model_version, ranker.counted_through, ranker.n_waiting) == (3, 5, 0)


def test_users_leave_and_are_forgotten():
    """The buttons of an application's settings work, and the round of the others goes on."""
    with (
        FakeFederation(2) as federation,
        SearchRanker(federation.credentials("a"), store=":memory:") as leaving,
        SearchRanker(federation.credentials("b"), store=":memory:") as forgotten,
    ):
        assert leaving.leave()
        assert str(forgotten.forget_me().state) == "forgotten"
        assert forgotten.forgotten
        assert federation.run_round() == 1


def test_an_application_with_another_schema_is_told():
    """Its device cannot take part in the round, and the error says why."""
    schemas = [FeatureSchema(name=name, version=1, features=[Feature(name="x", scaling="ratio")]) for name in "ab"]
    with (
        FakeFederation(schemas[0]) as federation,
        SearchRanker(federation.credentials("a"), store=":memory:", schema=schemas[1]),
        pytest.raises(UnavailableError, match="with other features than the federation"),
    ):
        federation.run_round()


async def test_asyncio_programs_run_it_in_a_thread():
    """Its devices are of the loop that entered them."""
    with FakeFederation(2) as federation:
        async with EdgeClient(federation.credentials("a"), store=":memory:") as client:
            click_second(client)
            assert await asyncio.to_thread(federation.run_round) == client.model_version == 1


def test_applications_do_not_load_it():
    """Nor what it needs for tests alone."""
    code = "import sys; from foltr import *; print({'foltr.testing', 'unittest.mock'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
