"""Going up a slope within a ball."""

import numpy as np

from foltr_research.simulation.unlearning.ascent import projected

CENTRE = np.array([1.0, 1.0], np.float32)


def test_what_is_outside_the_ball_is_drawn_to_its_surface():
    """Straight towards the centre, as (4, 5) in direction (3, 4) / 5; what is inside keeps its bits."""
    within = np.array([1.3, 0.6], np.float32)
    np.testing.assert_array_equal(projected(within, CENTRE, 0.5), within)
    np.testing.assert_allclose(projected(CENTRE + np.array([3.0, 4.0]), CENTRE, 0.5), [1 + 0.3, 1 + 0.4])
    np.testing.assert_array_equal(projected(np.array([7.0, -3.0]), CENTRE, 0.0), CENTRE)
