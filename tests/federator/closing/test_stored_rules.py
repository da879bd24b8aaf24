"""What a round is computed with is stored as text, and read again as it was."""

import pytest
from support.sampled_lists import sampled

from foltr.core.errors import DataError
from foltr.core.methods.registry import METHODS
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.trainings import FedIpsTraining
from foltr.federator.closing.stored_rules import stored_training, training_text


def test_every_methods_settings_are_read_as_they_were() -> None:
    """To the last bit of each number; text that is read and written again is the same."""
    for method in METHODS:
        parameters = {"n_clients": 3} if method == "fpdgd-paper" else {}
        training = sampled(method, parameters, 7)
        text = training_text(training)
        assert stored_training(text) == training, method
        assert training_text(stored_training(text)) == text, method


def test_bytes_among_the_settings_are_text_too() -> None:
    """Of a logging policy: weights of any bits."""
    training = FedIpsTraining(logging_policy=pack_vector([0.1, -3.0e38]) + bytes(range(248, 256)), learning_rate=0.1)
    assert stored_training(training_text(training)) == training


def test_settings_of_another_program_are_refused_in_words() -> None:
    with pytest.raises(DataError, match=r"this foltr does not know the stored settings of a method: \{\"kind\": 7\}"):
        stored_training('{"kind": 7}')
