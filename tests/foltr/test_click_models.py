import numpy as np
import pytest
from scipy.stats import binomtest

from foltr.click_models import CLICK_MODEL_NAMES, ClickModel, click_model, simulate_clicks
from foltr.errors import DataError, SettingsError


@pytest.mark.parametrize("n_grades", [3, 5])
@pytest.mark.parametrize("name", CLICK_MODEL_NAMES)
def test_published_models_have_a_probability_for_each_grade(name: str, n_grades: int) -> None:
    """Each name exists for both kinds of labels, and only `poison` likes the irrelevant best."""
    model = click_model(name, n_grades)
    assert len(model.click_probability) == len(model.stop_probability) == n_grades
    assert list(model.click_probability) == sorted(model.click_probability, reverse=name == "poison")


def test_unknown_models_are_refused_with_the_known_ones() -> None:
    """The message lists what may be written instead."""
    with pytest.raises(SettingsError, match="'perfekt'; one of: perfect, navigational, informational, poison"):
        click_model("perfekt", 5)
    with pytest.raises(SettingsError, match="3 or 5 relevance grades, not 4"):
        click_model("perfect", 4)


@pytest.mark.parametrize(("click", "stop"), [((0.5,), (0.5, 0.5)), ((1.5,), (0.0,)), ((0.5,), (float("nan"),))])
def test_impossible_users_are_refused(click: tuple[float, ...], stop: tuple[float, ...]) -> None:
    """Probabilities come in pairs and lie in [0, 1]."""
    with pytest.raises(SettingsError):
        ClickModel("odd", click, stop)


def test_a_perfect_user_clicks_exactly_the_best_and_reads_to_the_end(rng: np.random.Generator) -> None:
    """Grade 4 is always clicked, grade 0 never, and no click stops the reading."""
    clicks = simulate_clicks(click_model("perfect", 5), np.array([4, 0, 4, 0, 4], np.int16), rng)
    assert clicks.tolist() == [True, False, True, False, True]


@pytest.mark.parametrize("name", ["navigational", "informational"])
def test_the_cascade_stops_after_clicks(rng: np.random.Generator, name: str) -> None:
    """P(click at rank 2) = P(click) * (1 - P(click at rank 1) * P(stop)) for two documents of one grade."""
    model = click_model(name, 3)
    click, stop = model.click_probability[2], model.stop_probability[2]
    draws = [simulate_clicks(model, np.array([2, 2], np.int16), rng) for _ in range(5000)]
    first, second = np.sum(draws, axis=0).tolist()
    assert binomtest(first, 5000, click).pvalue > 1e-3
    assert binomtest(second, 5000, click * (1 - click * stop)).pvalue > 1e-3


def test_the_randomness_used_does_not_depend_on_the_clicks() -> None:
    """After any user, the generator stands at the same place."""
    after = set()
    for name in CLICK_MODEL_NAMES:
        rng = np.random.default_rng(5)
        simulate_clicks(click_model(name, 5), np.array([4, 3, 0], np.int16), rng)
        after.add(rng.random())
    assert len(after) == 1


@pytest.mark.parametrize("grade", [-1, 3])
def test_a_grade_outside_the_table_is_refused(rng: np.random.Generator, grade: int) -> None:
    """Labels 0 to 4 with a model for 0 to 2 are a mistake, wherever they stand in the list."""
    with pytest.raises(DataError, match="knows grades 0 to 2"):
        simulate_clicks(click_model("navigational", 3), np.array([2, 2, grade], np.int16), rng)


def test_nothing_shown_nothing_clicked(rng: np.random.Generator) -> None:
    """An empty list has no clicks."""
    assert simulate_clicks(click_model("perfect", 3), np.array([], np.int16), rng).shape == (0,)
