"""What the group of the ingest workers is called: what all of them know, and nobody else."""

from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics
from foltr.federator.ingest.service import shared_filter

TOPICS = Topics("fed")


def test_all_workers_of_a_federation_are_in_one_group():
    """Whoever has the key, however often it starts; the leader's is the same key."""
    key = SigningKey.generate()
    one, other = shared_filter(TOPICS, key), shared_filter(TOPICS, SigningKey.from_text(key.to_text()))
    assert one == other
    assert one.endswith("/foltr/v1/fed/clients/+/updates")
    assert len(one.split("/")[1]) <= 64


def test_its_name_follows_from_the_private_key():
    """Another key of the federator is another group, another federation too; the public key does not tell it."""
    key = SigningKey.generate()
    names = {shared_filter(TOPICS, key), shared_filter(TOPICS, SigningKey.generate())}
    names |= {shared_filter(Topics("other"), key), shared_filter(TOPICS, SigningKey(key.public))}
    assert len(names) == 4


def test_a_derived_secret_is_of_its_purpose():
    """So one that is exposed exposes no other."""
    for purpose in ["", "one", "another"]:
        key = SigningKey.generate()
        assert len({key.derive(each) for each in (purpose, "one more", "and one more")}) == 3, purpose
