"""A device that enrols itself makes its keys once for each token, whoever of its commands comes first."""

import stat

from foltr.core.operator.credentials import BrokerAccess
from foltr.core.operator.one_time_tokens import OneTimeToken
from foltr.core.protocol.signing import SigningKey, key_to_text
from foltr.edge_client import enrolling


def token(number):
    key = SigningKey.generate()
    return OneTimeToken(
        federation="mail",
        client_id="till",
        token=f"{number:016x}",
        token_key=key.to_text(),
        enrolment_key=key_to_text(key.public),
        broker=BrokerAccess(broker_url="mqtt://127.0.0.1:1883"),
        expires_at=0.0,
    )


def test_two_commands_at_once_ask_with_the_same_keys(tmp_path, monkeypatch):
    """Else one of them loses, and if the other one is killed then, so is the token."""
    pending, one, generate, first = tmp_path / ".till.json.enrolling", token(1), SigningKey.generate, []

    def while_another_command_makes_its_keys():
        if not first:
            first.append(None)
            first[0] = enrolling.keys_for(pending, one)
        return generate()

    monkeypatch.setattr(enrolling.SigningKey, "generate", while_another_command_makes_its_keys)
    assert enrolling.keys_for(pending, one) == first[0]
    assert enrolling.keys_for(pending, one) == first[0]
    assert [path.name for path in tmp_path.iterdir()] == [pending.name]
    assert stat.S_IMODE(pending.stat().st_mode) == 0o600


def test_keys_of_another_token_make_room(tmp_path):
    """As does a file that is damaged."""
    pending = tmp_path / ".till.json.enrolling"
    former = enrolling.keys_for(pending, token(1))
    assert enrolling.keys_for(pending, token(2)).signing_key != former.signing_key
    pending.write_text("{")
    assert enrolling.keys_for(pending, token(2)) == enrolling.keys_for(pending, token(2))
