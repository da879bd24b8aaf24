"""A helper's public keys: written by the helper, read by the operator, and refused once changed."""

import json

import pytest

from foltr.core.errors import SettingsError
from foltr.core.operator.helper_keys import helper_keys_text, read_helper_keys
from foltr.core.protocol.policies import HelperKeys
from foltr.core.protocol.signing import SigningKey, key_to_text

KEY, OTHER = SigningKey(bytes(range(32))), SigningKey(bytes(range(1, 33)))
SEALING = bytes([7]) * 32
EPOCHS = [bytes([i]) * 32 for i in (9, 10)]


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "north.json"
    file.write_text(helper_keys_text("north", KEY, SEALING, EPOCHS))
    return file


def test_what_was_written_is_read_back(path):
    """A sealing key that makes no secret is refused: each device, which seals to it, would fail."""
    assert read_helper_keys(path) == HelperKeys(
        name="north", signing_key=KEY.public, sealing_key=SEALING, epoch_keys=EPOCHS
    )
    assert KEY.to_text() not in path.read_text()
    for keys in [(bytes(32), EPOCHS), (bytes([1]) + bytes(31), EPOCHS), (SEALING, [EPOCHS[0], bytes(32)])]:
        path.write_text(helper_keys_text("north", KEY, *keys))
        with pytest.raises(SettingsError, match="nothing can be sealed to a sealing key"):
            read_helper_keys(path)


def rewritten(path, changed):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    return path


def test_a_changed_file_is_refused(path, tmp_path):
    written = path.read_text()
    for changed in (
        {"name": "south"},
        {"sealing_key": key_to_text(bytes(32))},
        {"epoch_keys": [key_to_text(EPOCHS[0])]},
        {"signing_key": key_to_text(OTHER.public)},
    ):
        path.write_text(written)
        with pytest.raises(SettingsError, match="signature"):
            read_helper_keys(rewritten(path, changed))
    for content in [None, b"", b"[]", b"null", b"\xff\xfe", b"{", b"[" * 100_000]:
        file = tmp_path / "x.json"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(SettingsError, match="foltr helper keys"):
            read_helper_keys(file)


@pytest.mark.parametrize("changed", [{"name": "a/b"}, {"signing_key": "x"}, {"signature": "ä"}, {"more": "x"}])
def test_a_field_that_is_wrong_is_named(path, changed):
    with pytest.raises(SettingsError, match="foltr helper keys") as caught:
        read_helper_keys(rewritten(path, changed))
    assert next(iter(changed)) in str(caught.value)
