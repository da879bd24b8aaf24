"""The federator's credentials in an operator's folder: its sealing keys, and what becomes of them with another key."""

import pytest
from support.secure_policies import HELPERS

from foltr.core.errors import SettingsError
from foltr.core.operator import service_files
from foltr.core.operator.credentials import BrokerAccess, read_credentials
from foltr.core.operator.folder import open_authority
from foltr.core.operator.policy_terms import PolicyTerms, policy_of
from foltr.core.protocol.enrolment import issue_federator_key
from foltr.core.protocol.roster import FederatorKey
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.verify_keys import open_verify_key
from foltr.core.secure.sealing import SealingKey

BROKER = BrokerAccess(broker_url="mqtt://127.0.0.1:1883")
ELSEWHERE = BrokerAccess(broker_url="mqtts://broker.example:8883")


def federator_of(folder):
    return read_credentials(folder / "federator.json", "federator")


def issue_sealed_policy(operator, version):
    """Sign a policy whose verify key is sealed to the federator's key that the operator knows."""
    keys = [SealingKey.generate().public for _ in HELPERS]
    fresh = tuple(
        each.model_copy(update={"sealing_key": key, "epoch_keys": [key]})
        for each, key in zip(HELPERS, keys, strict=True)
    )
    key = operator.operator.federator_sealing_public_key
    return operator.issue_policy(policy_of(PolicyTerms(fresh), "mail", version, 1000.0, key))


def opens(credentials, signed):
    return [open_verify_key(signed.policy, None, key) is not None for key in credentials.opened_sealing_keys]


def test_the_federator_has_a_sealing_key_from_the_start(folder):
    """Its private half is in its credentials alone; the operator knows the public one, and nobody else has either."""
    with open_authority(folder) as operator:
        (key,) = federator_of(folder).opened_sealing_keys
        assert operator.operator.federator_sealing_public_key == key.public
        assert operator.operator.sealing_keys == ()
        others = [operator.enrol("device-7", BROKER), operator.enrol_helper("north", BROKER)]
    assert [(one.sealing_keys, one.federator_sealing_key) for one in others] == [((), None)] * 2
    (private,) = federator_of(folder).sealing_keys
    assert [path.name for path in folder.iterdir() if private in path.read_text(errors="replace")] == ["federator.json"]
    assert private not in repr(federator_of(folder))


def test_another_key_comes_with_another_sealing_key(folder):
    """And a folder from before a rotation knows none: it hears of the other key from the broker."""
    before = federator_of(folder)
    with open_authority(folder) as operator:
        operator.rotate_federator_key(ELSEWHERE)
        after = federator_of(folder)
        assert operator.operator.federator_sealing_public_key == after.opened_sealing_keys[0].public
    assert (len(after.sealing_keys), set(after.sealing_keys) & set(before.sealing_keys)) == (1, set())
    assert (after.federator_sealing_key, after.broker) == (None, BROKER)
    new = SigningKey.generate().public
    with open_authority(folder) as operator:
        old = operator.operator.federator_public_key
        key = SigningKey.from_text((folder / "enrolment.key").read_text().strip())
        statement = FederatorKey(federation="mail", sequence=2, old_key=old, new_key=new)
        assert operator.accept_statement(issue_federator_key(key, statement))
        assert operator.operator.federator_sealing_key is None
        operator.rotate_federator_key(BROKER)
        assert operator.operator.federator_sealing_public_key == federator_of(folder).opened_sealing_keys[0].public


def test_a_former_sealing_key_stays_while_a_policy_may_be_in_force_that_is_sealed_to_it(folder):
    """That is the published one, and the one before it, which a round may still be under."""
    with open_authority(folder) as operator:
        first = issue_sealed_policy(operator, 1)
        operator.rotate_federator_key(BROKER)
        assert opens(federator_of(folder), first) == [False, True]
        second = issue_sealed_policy(operator, 2)
        operator.rotate_federator_key(BROKER)
        assert opens(federator_of(folder), first) == [False, False, True]
        assert opens(federator_of(folder), second) == [False, True, False]
        third = issue_sealed_policy(operator, 3)
        operator.publish_policy()
        operator.note_published()
        operator.rotate_federator_key(BROKER)
        assert opens(federator_of(folder), second) == [False, False, True]
        assert opens(federator_of(folder), third) == [False, True, False]


def test_a_former_sealing_key_stays_while_newer_policies_are_only_signed(folder):
    """Two that nobody was given: rounds go on under the first, whose norm proofs are still to be checked."""
    with open_authority(folder) as operator:
        first = issue_sealed_policy(operator, 1)
        operator.publish_policy()
        operator.note_published()
        for version in (2, 3):
            operator.rotate_federator_key(BROKER)
            issue_sealed_policy(operator, version)
        operator.rotate_federator_key(BROKER)
    assert federator_of(folder).can_check(first.policy)


def test_of_credentials_that_were_moved_away_no_sealing_key_is_known(folder):
    """The next ones have a new key only, and what is sealed from then on is sealed to that."""
    with open_authority(folder) as operator:
        first = issue_sealed_policy(operator, 1)
    (folder / "federator.json").rename(folder.parent / "moved.json")
    with open_authority(folder) as operator:
        second = issue_sealed_policy(operator, 2)
        moved = read_credentials(folder.parent / "moved.json", "federator")
        assert (opens(moved, first), opens(moved, second)) == ([True], [True])
        operator.rotate_federator_key(ELSEWHERE)
        after = federator_of(folder)
        assert after.broker == ELSEWHERE
        assert opens(after, second) == [False]
        third = issue_sealed_policy(operator, 3)
        assert opens(after, third) == [True]
    assert [after.can_check(one.policy) for one in (first, second, third)] == [False, False, True]
    assert after.can_check(second.policy.model_copy(update={"norm_proof": None}))


@pytest.mark.parametrize("n_writes", [0, 1])
def test_an_interrupted_rotation_is_made_up_for(folder, interrupted, n_writes):
    """Whatever was written last, the operator seals to the key that is in the federator's credentials."""
    write_is_interrupted = interrupted(n_writes, service_files, name="write_credentials")
    with open_authority(folder) as operator, write_is_interrupted, pytest.raises(KeyboardInterrupt):
        operator.rotate_federator_key(BROKER)
    with open_authority(folder) as operator:
        keys = federator_of(folder).opened_sealing_keys
        assert operator.operator.federator_sealing_public_key == keys[0].public
        assert operator.operator.federator_key_sequence == n_writes


@pytest.mark.parametrize(
    "fields", [{"sealing_keys": ["XSECRETX"]}, {"sealing_keys": [5]}, {"federator_sealing_key": "x"}]
)
def test_sealing_keys_that_are_none_are_named_without_their_value(folder, fields):
    federator = federator_of(folder)
    path = folder / "federator.json"
    path.write_text(federator.model_copy(update=fields).model_dump_json(warnings=False))
    with pytest.raises(SettingsError, match=f"credentials: .*{next(iter(fields))}") as caught:
        federator_of(folder)
    assert "XSECRETX" not in str(caught.value)
