"""Feature schemas of an operator's folder: by version, never changed, and retained once they are signed."""

import pytest

from foltr.core.errors import MessageError, SettingsError
from foltr.core.operator.folder import open_authority
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.core.protocol.signed_documents import issue_schema, read_schema
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics

TOPIC = Topics("mail").schema


def schema(version, *names, name="shop"):
    features = [Feature(name=one, scaling="ratio") for one in names or ("bm25",)]
    return FeatureSchema(name=name, version=version, features=features)


def test_a_schema_is_kept_as_it_was_signed(folder):
    """Each version, for whoever opens the folder later; what is retained is the newest, which may be issued again."""
    with open_authority(folder) as operator:
        assert operator.schemas.newest() is None
        assert TOPIC not in dict(operator.unpublished())
        issued = [operator.issue_schema(schema(version)) for version in (1, 4)]
        assert dict(operator.unpublished())[TOPIC] == issued[-1].signed
    with open_authority(folder) as operator:
        assert [operator.schemas.get(version) for version in (1, 4)] == issued
        assert dict(operator.unpublished())[TOPIC] == issued[-1].signed
        operator.note_published()
        assert operator.unpublished() == []
        key = operator.operator.enrolment_public_key
        operator.publish_again()
        assert TOPIC in dict(operator.unpublished())
    assert all(read_schema(one.signed, key, "mail") == one for one in issued)
    with open_authority(folder) as operator:
        operator.note_published()
        assert operator.issue_schema(schema(4)) == issued[-1]
        assert dict(operator.unpublished())[TOPIC] == issued[-1].signed


def test_a_version_is_one_schema_for_ever(folder):
    """A change of features needs a higher version; an older version does not come back."""
    for other, words in [
        (schema(2, "bm25", "age"), "signed already, with other features"),
        (schema(2, name="store"), "signed already"),
        (schema(1), "1 is not above 2, the newest schema"),
    ]:
        with open_authority(folder) as operator:
            first = operator.issue_schema(schema(2))
            with pytest.raises(SettingsError, match=words):
                operator.issue_schema(other)
            assert operator.schemas.newest() == first, (other, words)


def test_a_schema_of_another_federation_or_operator_is_refused():
    """The topic is signed with it, so the same operator's schema of another federation is none of this one's."""
    key = SigningKey.generate()
    signed = issue_schema(key, schema(1), "mail").signed
    assert read_schema(signed, key.public, "mail").content == schema(1)
    for other_key, federation in ((key.public, "shop"), (SigningKey.generate().public, "mail")):
        with pytest.raises(MessageError, match="bad_signature"):
            read_schema(signed, other_key, federation)
