"""Users of trust bias, UBM and DBN click as often as their definitions say; parameters come from files."""

import itertools
import json

import numpy as np
import pytest

from foltr.core.errors import SettingsError
from foltr.core.evaluation.click_models import clicks_from_draws
from foltr_research.simulation.counterfactual.click_models import DBN, TRUST, UBM, UBM3, click_model_of

ATTRACTION = (0.1, 0.5, 0.9)
SATISFACTION = (0.2, 0.4, 0.8)
EXAMINATION = ((0.9,), (0.6, 0.8), (0.3, 0.5, 0.7), (0.2, 0.1, 0.4, 0.6))
GRADES = np.array([1, 2, 0, 2])
N = 40_000

UBM_PARAMETERS = {"model": "UBM", "attraction": ATTRACTION, "examination": EXAMINATION}
DBN_PARAMETERS = {"model": "DBN", "attraction": ATTRACTION, "satisfaction": SATISFACTION, "continuation": 0.8}
TRUST_PARAMETERS = {"model": "trust", "relevance": (0.0, 0.5, 1.0), "position_bias": 1.0}


def of_ubm(pattern):
    """P(pattern): each rank by the rank of the last click above (Dupret and Piwowarski 2008)."""
    chance, last = 1.0, 0
    for i, click in enumerate(pattern):
        p = EXAMINATION[i][last] * ATTRACTION[GRADES[i]]
        chance *= p if click else 1 - p
        last = i + 1 if click else last
    return chance


def of_dbn(pattern):
    """P(pattern): summed over the rank at which the user stops reading (Chapelle and Zhang 2009)."""
    reached, stopped = 1.0, 0.0
    for grade, click in zip(GRADES, pattern, strict=True):
        # Somebody who has stopped clicks nothing.
        stopped = 0.0 if click else stopped
        seen = reached * (ATTRACTION[grade] if click else 1 - ATTRACTION[grade])
        reached = seen * 0.8 * (1 - SATISFACTION[grade] if click else 1.0)
        stopped += seen - reached
    return reached + stopped


def of_trust(pattern):
    """P(pattern): independent, alpha R + beta with the published figures (Vardasbi et al. 2020)."""
    relevance = np.array([0.5, 1.0, 0.0, 1.0])
    ranks = np.arange(1, 5)
    p = (relevance * (1 - (ranks + 1) / 100) + (1 - relevance) * 0.65 / ranks) / ranks
    return np.prod(np.where(pattern, p, 1 - p))


@pytest.mark.parametrize(
    ("parameters", "chance_of"),
    [(UBM_PARAMETERS, of_ubm), (DBN_PARAMETERS, of_dbn), (TRUST_PARAMETERS, of_trust)],
    ids=["UBM", "DBN", "trust"],
)
def test_every_way_to_click_is_as_frequent_as_its_probability(rng, parameters, chance_of):
    """All sixteen, within five standard errors; the probabilities are one together."""
    model = click_model_of(parameters)
    clicks = np.array([clicks_from_draws(model, GRADES, rng.random(8)) for _ in range(N)])
    patterns = [np.array(one) for one in itertools.product([False, True], repeat=4)]
    chances = np.array([chance_of(one) for one in patterns])
    assert chances.sum() == pytest.approx(1.0)
    frequencies = np.array([(clicks == one).all(axis=1).mean() for one in patterns])
    assert (np.abs(frequencies - chances) <= 5 * np.sqrt(chances * (1 - chances) / N) + 1e-12).all()


def test_a_dbn_without_satisfaction_and_end_is_a_user_of_attraction_alone(rng):
    """And ranks below the last row of a UBM are not examined."""
    endless = click_model_of({"model": "DBN", "attraction": [0.3, 0.6], "satisfaction": [0.0, 0.0]})
    grades = np.zeros(1000, np.int64)
    assert clicks_from_draws(endless, grades, rng.random(2000)).mean() == pytest.approx(0.3, abs=0.06)
    short = click_model_of({"model": "UBM", "attraction": [1.0, 1.0], "examination": [[1.0], [1.0, 1.0]]})
    np.testing.assert_array_equal(clicks_from_draws(short, grades[:4], rng.random(8)), [True, True, False, False])


def test_a_file_and_a_dictionary_are_the_same_user(tmp_path):
    """With a name of its own in tables."""
    path = tmp_path / "site.json"
    path.write_text(json.dumps(UBM_PARAMETERS))
    assert click_model_of(path, "site") == click_model_of(UBM_PARAMETERS, "site")
    assert click_model_of(str(path)).name == "UBM"
    assert click_model_of(path).click_probability == ATTRACTION


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model": "CCM"}, "model: 'CCM' is none of trust, UBM, DBN"),
        ({"attraction": [0.5, 1.5]}, r"UBM: attraction\.1: Input should be less than or equal to 1"),
        ({"attraction": None}, "UBM: attraction: Input should be a valid tuple"),
        ({"examination": [[0.5], [0.5]]}, "examination: rank 2 has 1 probabilities; it needs 2"),
        ({"satisfaction": [0.5, 0.5]}, "UBM: satisfaction: "),
        ({"model": "DBN", "satisfaction": [0.5], "examination": None}, "DBN: "),
    ],
)
def test_wrong_parameters_are_named(changed, told):
    """In one line."""
    with pytest.raises(SettingsError, match=told):
        click_model_of({**UBM_PARAMETERS, **changed})
    with pytest.raises(SettingsError, match="satisfaction: 2 grades, but attraction has 3"):
        click_model_of({**DBN_PARAMETERS, "satisfaction": [0.5, 0.5]})


@pytest.mark.parametrize(("text", "told"), [(None, "No such file"), ("{", "not JSON"), ("[1]", "expected an object")])
def test_a_file_that_is_no_click_model_is_named(tmp_path, text, told):
    """With the cause."""
    path = tmp_path / "site.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingsError, match=rf"site\.json: .*{told}"):
        click_model_of(path)


def test_usual_users_have_names_and_grades():
    """UBM's attention begins again after each click; a name is for one number of grades."""
    assert [one.name for one in (TRUST, UBM, DBN, UBM3)] == ["trust", "ubm", "dbn", "ubm3"]
    assert UBM.reads.examination[3] == (1 / 4, 1 / 3, 1 / 2, 1.0)
    assert len(UBM3.click_probability) == 3
    assert DBN.reads.continuation == 0.9
