"""Going up a slope within a ball."""

import numpy as np

from foltr_research.simulation.unlearning.ascent import projected

CENTRE = np.array([1.0, 1.0], np.float32)


def test_what_is_in_the_ball_stays():
    """The bits too."""
    within = np.array([1.3, 0.6], np.float32)
    np.testing.assert_array_equal(projected(within, CENTRE, 0.5), within)


def test_what_is_outside_is_drawn_to_its_surface():
    """Straight towards the centre: (4, 5) is 5 away in direction (3, 4) / 5."""
    np.testing.assert_allclose(projected(CENTRE + np.array([3.0, 4.0]), CENTRE, 0.5), [1 + 0.3, 1 + 0.4])


def test_a_ball_of_no_size_is_its_centre():
    """Whatever is projected."""
    np.testing.assert_array_equal(projected(np.array([7.0, -3.0]), CENTRE, 0.0), CENTRE)
