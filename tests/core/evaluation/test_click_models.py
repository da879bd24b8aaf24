import numpy as np
import pytest

from foltr.core.errors import DataError, SettingsError
from foltr.core.evaluation.click_models import (
    CLICK_MODEL_NAMES,
    ClickModel,
    click_model,
    clicks_from_draws,
    personal,
    simulate_clicks,
)


def test_published_models_have_a_probability_for_each_grade() -> None:
    """Each name exists for both kinds of labels, and only `poison` likes the irrelevant best."""
    for n_grades in [3, 5]:
        for name in (*CLICK_MODEL_NAMES, "pbm-0.7", "fedips-1"):
            model = click_model(name, n_grades)
            assert len(model.click_probability) == len(model.stop_probability) == n_grades, (n_grades, name)
            assert list(model.click_probability) == sorted(model.click_probability, reverse=name == "poison")
    # FedIPS, Eq. 11: examination times 1 for the relevant grades, times 0.1 for the others.
    for n_grades, expected in [(3, [0.1, 1, 1]), (5, [0.1, 0.1, 0.1, 1, 1])]:
        model = click_model("fedips-1.5", n_grades)
        assert list(model.click_probability) == expected
        assert not any(model.stop_probability)
        assert (model.examination_exponent, model.personal_spread) == (1.5, 0.1)


def test_unknown_models_and_impossible_users_are_refused() -> None:
    """With the known ones; probabilities come in pairs in [0, 1], and attention may not rise with the rank."""
    with pytest.raises(SettingsError, match="'perfekt'; one of: perfect, navigational, informational, poison"):
        click_model("perfekt", 5)
    with pytest.raises(SettingsError, match=r"'pbm3'; one of: .*poison, pbm-<eta>, fedips-<gamma>"):
        click_model("pbm3", 5)
    for name in ("fedips-", "fedips-much", "fedips--1", "fedips-nan", "pbm-inf", "pbm-", "pbm--0.5"):
        with pytest.raises(SettingsError, match="a number of at least 0"):
            click_model(name, 5)
    with pytest.raises(SettingsError, match="2, 3, 5 relevance grades, not 4"):
        click_model("perfect", 4)
    for click, stop in [((0.5,), (0.5, 0.5)), ((1.5,), (0.0,)), ((0.5,), (float("nan"),))]:
        with pytest.raises(SettingsError):
            ClickModel("odd", click, stop)
    with pytest.raises(SettingsError, match="at least 0"):
        ClickModel("odd", (0.5,), (0.5,), -1.0)
    for grade in (-1, 3):
        with pytest.raises(DataError, match="knows grades 0 to 2"):
            simulate_clicks(click_model("navigational", 3), np.array([2, 2, grade], np.int16), np.random.default_rng(1))


def test_personal_users_differ_around_the_model(rng: np.random.Generator) -> None:
    """Exponents are normal around gamma and never negative; users of other models draw nothing."""
    exponents = [personal(click_model("fedips-1", 5), rng).examination_exponent for _ in range(2000)]
    assert np.mean(exponents) == pytest.approx(1.0, abs=0.02)
    assert np.std(exponents) == pytest.approx(0.1, abs=0.02)
    assert min(personal(click_model("fedips-0", 5), rng).examination_exponent for _ in range(200)) >= 0.0
    state = rng.bit_generator.state
    model = click_model("pbm-1", 5)
    assert personal(model, rng) is model
    assert rng.bit_generator.state == state


def test_clicks_are_a_function_of_the_draws(rng: np.random.Generator) -> None:
    """Draw 2i decides the click at position i, draw 2i + 1 whether the user stops; the rest is not looked at."""
    model, relevance = click_model("navigational", 3), np.array([1, 1, 1])
    reads_on = np.array([0.49, 0.51, 0.51, 0.0, 0.49, 0.0, 9.0, 9.0])
    assert clicks_from_draws(model, relevance, reads_on).tolist() == [True, False, True]
    stops = np.array([0.49, 0.49, 0.0, 0.0, 0.0, 0.0])
    assert clicks_from_draws(model, relevance, stops).tolist() == [True, False, False]
    # At rank 2 of pbm-2 a quarter of what is clicked at rank 1.
    for draw in (0.24, 0.26):
        clicks = clicks_from_draws(click_model("pbm-2", 3), np.array([2, 2]), np.array([0.99, 0.0, draw, 0.0]))
        assert clicks.tolist() == [True, draw < 0.25]
    with pytest.raises(DataError, match="3 documents need 6 draws, not 5"):
        clicks_from_draws(model, relevance, stops[:5])
    after = set()
    for name in (*CLICK_MODEL_NAMES, "pbm-0.7", "fedips-1"):
        rng = np.random.default_rng(5)
        simulate_clicks(click_model(name, 5), np.array([4, 3, 0], np.int16), rng)
        after.add(rng.random())
    assert len(after) == 1
    clicks = simulate_clicks(click_model("perfect", 5), np.array([4, 0, 4, 0, 4], np.int16), rng)
    assert clicks.tolist() == [True, False, True, False, True]
    assert simulate_clicks(click_model("perfect", 3), np.array([], np.int16), rng).shape == (0,)
