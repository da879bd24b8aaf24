"""Type 2: what its online performance says."""

import pytest
from made_results import ROUNDS, results

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiments.noniid import NON_IID
from foltr_research.reproductions.experiments.noniid_labels import DISCOUNT
from foltr_research.reproductions.registry import EXPERIMENTS


@pytest.mark.parametrize(("share", "status"), [(0.8, Status.CONFIRMED), (0.7, Status.NOT_CONFIRMED)])
def test_one_of_five_clients_never_sees_anything_relevant(share, status):
    """Lists of the other four are ideal whatever the ranker: 4/5 of the highest discounted sum."""
    labels = (("ranker", "linear"), *NON_IID.items(), ("B", "5"), ("clicks", "perfect"))
    made = results({labels: [0.4, 0.4]})
    for one in made:
        one.result["online_ndcg"] = share * (1 - DISCOUNT**ROUNDS) / (1 - DISCOUNT)
    assert EXPERIMENTS["thesis-table-4.3"].claims[0].check(made).status is status
