"""A configuration's words become data, or one line says why they cannot."""

import pytest

from foltr.core.errors import SettingsError
from foltr_research.simulation.clients.loading import check_data_name
from foltr_research.simulation.config import SimulationConfig


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"data": "synthetic-intents"}, "add --population type1"),
        ({"population": "type1"}, "needs intents: --data synthetic-intents or a folder with 1.txt to 4.txt"),
        ({"population": "type1-iid", "data": "mslr-sample"}, "type1-iid needs intents"),
    ],
)
def test_data_that_does_not_go_with_the_population(values, words):
    """One line with the option that is missing; what fits passes."""
    with pytest.raises(SettingsError, match=words):
        check_data_name(SimulationConfig.read(values))
    check_data_name(SimulationConfig())
    check_data_name(SimulationConfig(data="synthetic-intents", population="type1+type4"))
