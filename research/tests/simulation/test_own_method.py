"""A method in one class may change what it is given, and remember: neither reaches another device."""

import numpy as np
import pytest

import foltr_research as fr
from foltr.core.errors import SettingsError

RUN = {"clients": 3, "rounds": 4, "interactions": 3, "eval_every": 2, "seed": 5}


class InPlace(fr.Method):
    def learn(self, weights, seen, rng):
        weights += super().learn(weights.copy(), seen, rng) - weights
        return weights

    def send(self, weights, start, rng):  # noqa: ARG002
        start *= 0
        return weights


class Counting(fr.Method):
    _n_seen = 0
    _sum = np.zeros(())

    def learn(self, weights, seen, rng):
        assert (self._n_seen, self._sum) == (seen.id, seen.id)
        self._n_seen += 1
        self._sum += 1
        return super().learn(weights, seen, rng)


class Velocity(fr.Method):
    def learn(self, weights, seen, rng):  # noqa: ARG002
        self.velocity = weights


@pytest.mark.parametrize("method", [InPlace, Counting])
def test_it_learns_what_fpdgd_learns(method):
    """Weights and the round's model are copies; an attribute, also an array, begins again in each device's round."""
    assert np.array_equal(fr.simulate(method=method, **RUN).weights, fr.simulate(method=fr.Method, **RUN).weights)


def test_a_parameter_cannot_be_set():
    """The error says where state goes."""
    with pytest.raises(SettingsError, match="private attribute: declare _velocity"):
        fr.simulate(method=Velocity, **RUN)
