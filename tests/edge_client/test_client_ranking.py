"""Ranking on the device: without a network, with the newest model, and never with an error that is not foltr's."""

import numpy as np
import pytest
from support.device_stores import stored
from support.federator_by_hand import N_FEATURES, content, device, in_round, model, see

from foltr.core.errors import DataError
from foltr.core.protocol.codec import encode

NAN, INF = float("nan"), float("inf")
ROW = [0.0] * N_FEATURES


async def test_what_cannot_be_ranked_is_a_data_error(nowhere, path):
    """The error is foltr's own and names the place that the application has to look at."""
    unfit = (
        ([ROW, [ROW[0], NAN, *ROW[2:]]], "row 1, column 1 is nan"),
        ([[*ROW[:-1], INF]], "row 0, column 15 is inf"),
        ([[*ROW[:-1], 1e300]], ""),  # too large for float32
        ([[], []], ""),
        (ROW, ""),
        ([[ROW]], ""),
        ([ROW, ROW, ROW[:-1]], f"row 2 has {N_FEATURES - 1} columns, and row 0 has {N_FEATURES}"),
        ([[10**400] * N_FEATURES], ""),  # too large for any float
        (3.0, ""),
    )
    unfit_bases = (
        ([1.0, INF], "document 1 is inf"),
        ([1.0], "expected a number for each of 2 documents"),
        *((base, "") for base in ([[1.0, 2.0]], [1.0, NAN], ["x", "y"], [1.0, 1e300], 3.0)),
    )
    with stored(path) as store:
        store.put_model(encode(model()))
    async with device(nowhere, path) as client:
        for features, said in unfit:
            with pytest.raises(DataError, match=f"features.*{said}"):
                pytest.fail(f"{features}: {client.rank(features)}")
        for base, said in unfit_bases:
            with pytest.raises(DataError, match=f"base: .*{said}"):
                pytest.fail(f"{base}: {client.rank([ROW, ROW], base=base)}")
        for k in (0, -1, 2.5, True, "3", np.float64(2.0)):
            with pytest.raises(DataError, match="give an integer from 1"):
                pytest.fail(f"{k}: {client.rank([ROW], k=k)}")
        assert len(client.rank([ROW, ROW], k=np.int64(1)).ranking) == 1


@pytest.mark.parametrize("row", [ROW[:-1], [*ROW, 0.0]], ids=["a feature too few", "a feature too many"])
async def test_another_number_of_features_than_the_federations_breaks_no_search(mqtt_broker, path, row):
    """The list is in the application's order, its clicks wait, and count once the federation's features are these."""
    async with in_round(mqtt_broker, path) as (federator, client):
        for _ in range(3):
            serp = client.rank([row, row, row], exploration="none")
            assert (serp.source, serp.ranking.tolist(), serp.model_version) == ("base", [0, 1, 2], 0)
            client.record_clicks(serp, [1])
        assert client.n_waiting == 3
        await federator.nothing_on("updates")
        see(client, 4, 5)
        assert content(await federator.update()) == [4, 5]
        assert client.n_waiting == 0


async def test_a_list_is_full_or_has_all_candidates(mqtt_broker, nowhere):
    """Without a network, too. Recording an empty one is nothing, before there is a model and after."""
    async with device(nowhere) as client:
        for n, k in ((30, None), (30, 25), (4, None)):
            assert len(set(client.rank(np.eye(n, N_FEATURES), k=k).ranking.tolist())) == min(n, k or 10)
        for features in ([], np.zeros((0, N_FEATURES)), np.zeros((0, 3), np.float32)):
            serp = client.rank(features, base=[])
            assert (len(serp.ranking), len(serp.reversals), serp.source) == (0, 0, "base")
            client.record_clicks(serp, [])
            with pytest.raises(DataError, match=r"position 0 is outside the list \(it is empty\)"):
                client.record_clicks(serp, [0])
        assert client.n_waiting == 0
    async with in_round(mqtt_broker) as (_, client):
        client.record_clicks(client.rank([]), [])
        assert (client.n_waiting, len(client.rank([]).ranking)) == (0, 0)
