"""How commands reach the operator's broker at another address."""

import pytest

from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import BrokerAccess
from foltr.operations.operator_access import redirect


def test_another_address_keeps_the_user_unless_it_names_one():
    """With its own user it takes no password of another."""
    access = BrokerAccess(broker_url="mqtt://h", username="u", password="p")  # noqa: S106 (made up)
    assert redirect(access, None) == access
    assert redirect(access, "mqtt://i:5") == access.model_copy(update={"broker_url": "mqtt://i:5"})
    assert redirect(access, "mqtt://v@i") == BrokerAccess(broker_url="mqtt://i:1883", username="v")


def test_certificates_are_not_taken_to_an_address_without_tls():
    """They would protect nothing."""
    with pytest.raises(SettingsError, match="mqtts://"):
        redirect(BrokerAccess(broker_url="mqtts://h", ca="CA"), "mqtt://h")
