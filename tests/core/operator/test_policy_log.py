"""Policies of an operator's folder: by version, never changed, and in all credentials that are written from then on."""

import shutil

import pytest

from foltr.core.errors import SettingsError
from foltr.core.operator import authority as authority_module
from foltr.core.operator.credentials import BrokerAccess, read_credentials
from foltr.core.operator.documents import recover_policy
from foltr.core.operator.folder import open_authority
from foltr.core.operator.policy_terms import PolicyTerms, policy_of
from foltr.core.protocol.policies import HelperKeys
from foltr.core.protocol.signed_policies import Lineage, lineage_of, read_policy
from foltr.core.protocol.topics import Topics

BROKER = BrokerAccess(broker_url="mqtt://127.0.0.1:1883")
TOPIC = Topics("mail").policy


def policy(version, federation="mail", keys=None):
    """A policy whose helpers have keys of its own, or those of the policy ``keys``."""
    sealing = {i: bytes([i, version if keys is None else keys]) * 16 for i in (1, 2)}
    helpers = tuple(
        HelperKeys(name=f"h{i}", signing_key=bytes([i]) * 32, sealing_key=key, epoch_keys=[key])
        for i, key in sealing.items()
    )
    return policy_of(PolicyTerms(helpers, norm_proof="none"), federation, version, 1000.0)


def test_a_policy_is_kept_as_it_was_signed(folder):
    """Each version, for whoever opens the folder later; each names those before it, also over a gap."""
    with open_authority(folder) as operator:
        assert operator.policies.newest() is None
        issued = [operator.issue_policy(policy(version)) for version in (1, 2, 7)]
    with open_authority(folder) as operator:
        assert operator.policies.newest() == issued[-1]
        assert [operator.policies.get(version) for version in (1, 2, 7)] == issued
        with pytest.raises(SettingsError, match="no version 3; its newest is 7"):
            operator.policies.get(3)
        key = operator.operator.enrolment_public_key
    assert all(read_policy(one.signed, key, "mail") == one for one in issued)
    assert [one.policy.predecessors for one in issued] == [[], [issued[0].hash], [issued[1].hash, issued[0].hash]]
    assert lineage_of(issued[2], issued[0]) is Lineage.SUCCESSOR


def test_a_version_is_used_once_and_brings_new_sealing_keys(folder):
    """Devices take only higher ones; older keys are destroyed, or what was sealed to them could be opened for ever."""
    with open_authority(folder) as operator:
        operator.issue_policy(policy(1))
        issued = operator.issue_policy(policy(2))
        for version in (1, 2):
            with pytest.raises(SettingsError, match="not above 2"):
                operator.issue_policy(policy(version, keys=9))
        with pytest.raises(SettingsError, match="h1 has the sealing key of an older policy"):
            operator.issue_policy(policy(3, keys=1))
        assert operator.policies.newest() == issued


def test_a_damaged_policy_is_named(folder):
    """So is a copy of version 1 as version 2, which would be two policies with one hash."""
    with open_authority(folder) as operator:
        operator.issue_policy(policy(1))
    file = (folder / "policies" / "00000001.policy").rename(folder / "policies" / "00000002.policy")
    with pytest.raises(SettingsError, match="it is version 1"), open_authority(folder):
        pass
    for damage in (b"", b"x"):
        file.write_bytes(damage)
        with pytest.raises(SettingsError, match="is damaged"), open_authority(folder):
            pass


def test_credentials_carry_the_newest_policy(folder):
    """Those of devices that are enrolled from then on, of the services, and of a federator with another key."""
    with open_authority(folder) as operator:
        before = operator.enrol("device-1", BROKER)
        issued = [operator.issue_policy(policy(version)) for version in (1, 2)][-1]
        after = operator.enrol("device-2", BROKER)
        assert before.policy is None
        assert after.signed_policy == operator.operator.signed_policy == issued
        assert read_credentials(folder / "federator.json", "federator").signed_policy == issued
        operator.rotate_federator_key(BROKER)
    assert read_credentials(folder / "federator.json", "federator").signed_policy == issued
    assert read_credentials(folder / "operator.json", "operator").signed_policy == issued


def test_credentials_are_made_up_for_after_an_interruption(folder, monkeypatch):
    """A command that died between the policy and the files that carry it: the next one writes them."""
    (folder / "federator.json").rename(folder.parent / "moved.json")

    def dies(*_):
        raise KeyboardInterrupt

    with open_authority(folder) as operator:
        monkeypatch.setattr(authority_module, "update_service_policies", dies)
        with pytest.raises(KeyboardInterrupt):
            operator.issue_policy(policy(1))
        monkeypatch.undo()
    with open_authority(folder) as operator:
        assert operator.enrol("device-1", BROKER).signed_policy == operator.policies.newest()
    assert not (folder / "federator.json").exists()


def test_a_policy_is_published_once_it_is_said(folder):
    """Then it stays published: with what else is retained, should the broker have lost it."""
    with open_authority(folder) as operator:
        operator.issue_policy(policy(1))
        assert TOPIC not in dict(operator.unpublished())
        operator.publish_policy()
        assert dict(operator.unpublished())[TOPIC] == operator.policies.get(1).signed
        operator.note_published()
        assert operator.unpublished() == []
        issued = operator.issue_policy(policy(2))
        operator.publish_again()
        assert dict(operator.unpublished())[TOPIC] == operator.policies.get(1).signed
        operator.publish_policy()
        assert dict(operator.unpublished())[TOPIC] == issued.signed


@pytest.mark.parametrize("made_since", [(), (2,), (2, 3, 4)])
def test_a_restored_folder_takes_the_published_policy_back(folder, tmp_path, made_since):
    """What was made since and does not follow from it is set aside; the next policy follows from what devices know."""
    with open_authority(folder) as operator:
        first = operator.issue_policy(policy(1))
    shutil.copytree(folder, tmp_path / "copy")
    with open_authority(folder) as operator:
        operator.issue_policy(policy(2))
        published = operator.issue_policy(policy(3))
        assert recover_policy(operator.policies, published) is None
        assert recover_policy(operator.policies, first) is None
    with open_authority(tmp_path / "copy") as operator:
        for version in made_since:
            operator.issue_policy(policy(version, keys=20 + version))
        assert recover_policy(operator.policies, published) == list(made_since)
    with open_authority(tmp_path / "copy") as operator:
        assert operator.policies.newest() == published
        assert operator.operator.signed_policy == published
        following = operator.issue_policy(policy(4))
        assert lineage_of(following, published) is Lineage.SUCCESSOR
        assert recover_policy(operator.policies, published) is None
