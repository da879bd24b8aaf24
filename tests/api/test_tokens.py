"""Tokens: made once, stored as hashes, good until they expire or are revoked."""

import json

import pytest

from foltr.api.tokens import Bearer, Role, TokenFile, TokenRefusal
from foltr.core.errors import DataError, SettingsError

FEDERATION = "mail"


@pytest.fixture
def tokens(tmp_path):
    return TokenFile(tmp_path / "tokens.json")


def test_a_token_is_good_for_its_role_until_it_expires(tokens):
    """And not a second longer."""
    text, record = tokens.add(Role.VIEWER, FEDERATION, 60.0, None)
    assert tokens.check(text, FEDERATION, record.made_at) == Bearer(record.id, Role.VIEWER, record.expires_at)
    assert tokens.check(text, FEDERATION, record.expires_at) is TokenRefusal.EXPIRED


def test_neither_a_token_nor_a_clients_name_is_stored(tokens):
    """A name that is to be forgotten would outlive that in the file; a stolen file lets nobody in."""
    text, record = tokens.add(Role.PARTICIPANT, FEDERATION, 60.0, "anna-phone")
    stored = tokens.path.read_text()
    assert "anna-phone" not in stored
    assert text.split(".")[1] not in stored
    assert tokens.path.stat().st_mode & 0o077 == 0
    assert tokens.check(text, FEDERATION, record.made_at).client_id == "anna-phone"


def test_a_token_that_was_changed_is_unknown(tokens):
    """The hash is of the whole text, so that a participant cannot become another one; nor one of another federation."""
    text, record = tokens.add(Role.PARTICIPANT, FEDERATION, 60.0, "anna")
    another, nobody = text.replace("anna", "otto"), text.rpartition(".")[0]
    for changed in (another, nobody, text[:-1], "x" + text, text + "ä", "", "." * 500):
        assert tokens.check(changed, FEDERATION, record.made_at) is TokenRefusal.UNKNOWN, changed
    assert tokens.check(text, "other", record.made_at) is TokenRefusal.UNKNOWN


def test_a_revoked_token_is_refused_by_who_has_the_file_open(tokens):
    """A running server reads the file again once it has changed."""
    text, record = tokens.add(Role.OPERATOR, FEDERATION, 60.0, None)
    assert isinstance(tokens.check(text, FEDERATION, record.made_at), Bearer)
    TokenFile(tokens.path).revoke(record.id)
    assert tokens.check(text, FEDERATION, record.made_at) is TokenRefusal.REVOKED
    with pytest.raises(DataError, match="has no token 'nobody'"):
        tokens.revoke("nobody")


def test_expired_tokens_leave_the_file(tokens):
    """With the next one that is made: it does not grow for ever."""
    _, old = tokens.add(Role.VIEWER, FEDERATION, -1.0, None)
    _, new = tokens.add(Role.VIEWER, FEDERATION, 60.0, None)
    assert set(tokens.records()) == {new.id}
    assert old.id not in json.dumps(list(tokens.records()))


def test_only_a_participant_is_a_client(tokens):
    """And its name is one."""
    for role, client in ((Role.VIEWER, "anna"), (Role.PARTICIPANT, None), (Role.PARTICIPANT, "a/b")):
        with pytest.raises(SettingsError, match="client"):
            tokens.add(role, FEDERATION, 60.0, client)


def test_a_file_that_others_can_read_or_that_is_broken_lets_nobody_in(tokens):
    """The error says what to do."""
    text, record = tokens.add(Role.VIEWER, FEDERATION, 60.0, None)
    tokens.path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        tokens.check(text, FEDERATION, record.made_at)
    tokens.path.chmod(0o600)
    tokens.path.write_text('{"tokens": [{"id": 1}]}')
    with pytest.raises(SettingsError, match="not a file of tokens"):
        tokens.check(text, FEDERATION, record.made_at)
