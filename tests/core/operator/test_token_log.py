"""One-time tokens: each is used once, for one key, in time, and for a name that is as it was."""

import itertools
import json
import stat

import pytest

from foltr.core.errors import ProtocolViolationError, SettingsError
from foltr.core.operator.credentials import BrokerAccess
from foltr.core.operator.folder import create_authority, open_authority
from foltr.core.operator.token_log import GRACE_S, KEPT_S, TRANSITIONS, TokenState, decide
from foltr.core.protocol.enrolment_requests import EnrolmentCode
from foltr.core.protocol.orders import OrderAnswer, OrderReply
from foltr.core.protocol.signed_requests import issue_request, read_request
from foltr.core.protocol.signing import SigningKey
from foltr.core.secure.sealing import SealingKey

BROKER = BrokerAccess(broker_url="mqtt://127.0.0.1:1883")
HOUR = 3600.0
NOW = 1_000_000.0


@pytest.fixture
def authority(tmp_path):
    with create_authority(tmp_path / "operator", "mail", federator=BROKER, operator=BROKER) as authority:
        yield authority


def issued(authority, name="till", lasts_s=HOUR, now=NOW):
    return authority.tokens.issue([name], authority.register, lasts_s, now)[name]


def request_of(record, key, device=None):
    device = SigningKey.generate() if device is None else device
    payload = issue_request(key, "mail", record.token, device, SealingKey.generate().public)
    return read_request(payload, "mail", record.token)


def judged(authority, record, request, now=NOW + 1):
    return decide(authority.tokens.get(record.token), request, authority.register, now)


def test_a_record_moves_only_as_the_table_says(authority):
    """Used and revoked are the end; what is claimed is open no more."""
    record, _ = issued(authority)
    for start, end in itertools.product(TokenState, TokenState):
        before = record.model_copy(update={"state": start})
        if end in TRANSITIONS[start]:
            assert before.with_state(end).state is end
        else:
            with pytest.raises(ProtocolViolationError, match=record.token):
                before.with_state(end)
    assert set(TRANSITIONS) == set(TokenState)
    assert TokenState.OPEN not in set().union(*TRANSITIONS.values())
    assert not TRANSITIONS[TokenState.USED] | TRANSITIONS[TokenState.REVOKED]


def test_the_folder_has_no_token_that_could_be_used(authority):
    """The device alone gets the private key; records stay for a month, and a damaged one is not taken for none."""
    record, key = issued(authority)
    path = authority.folder / "tokens" / f"{record.token}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key.to_text() not in path.read_text()
    authority.tokens.prune(record.expires_at + KEPT_S - 1)
    assert authority.tokens.records() == [authority.tokens.get(record.token)] == [record]
    written = path.read_text()
    path.write_text(json.dumps({"token": record.token}))
    with pytest.raises(SettingsError, match=record.token):
        authority.tokens.get(record.token)
    path.write_text(written)
    authority.tokens.prune(record.expires_at + KEPT_S)
    assert authority.tokens.records() == []


def test_a_token_counts_until_it_expires_and_not_after(authority):
    """To the second; for a minute to thirty days: one that never ends would be a second key."""
    record, key = issued(authority)
    request = request_of(record, key)
    assert judged(authority, record, request, NOW + HOUR - 1) is EnrolmentCode.ENROLLED
    assert judged(authority, record, request, NOW + HOUR) is EnrolmentCode.TOKEN_EXPIRED
    for lasts_s in [0.0, 59.0, 31 * 86_400.0, -1.0, float("nan")]:
        with pytest.raises(SettingsError, match="expires"):
            issued(authority, lasts_s=lasts_s)


def test_a_claimed_token_is_its_claimants_alone(authority):
    """The same keys are granted what was asked for in time, also later; another reply key is another request."""
    record, key = issued(authority)
    request = request_of(record, key)
    authority.tokens.put(record.claimed_by(request))
    assert judged(authority, record, request, NOW + 2 * HOUR) is EnrolmentCode.ENROLLED
    assert judged(authority, record, request_of(record, key), NOW + 1) is EnrolmentCode.TOKEN_USED
    record, key = issued(authority)
    device = SigningKey.generate()
    authority.tokens.put(record.claimed_by(request_of(record, key, device)))
    assert judged(authority, record, request_of(record, key, device)) is EnrolmentCode.TOKEN_USED


def test_a_revoked_token_and_an_unknown_one_are_told_apart(authority, monkeypatch):
    """And no more are open than can be looked through."""
    record, key = issued(authority)
    request = request_of(record, key)
    assert authority.tokens.revoke([record]) == 1
    assert judged(authority, record, request) is EnrolmentCode.TOKEN_REVOKED
    assert decide(None, request, authority.register, NOW) is EnrolmentCode.TOKEN_UNKNOWN
    monkeypatch.setattr("foltr.core.operator.token_log.MAX_OPEN_TOKENS", 2)
    authority.tokens.issue(["a", "b"], authority.register, HOUR, NOW)
    with pytest.raises(SettingsError, match="2 tokens are open"):
        issued(authority, "c")
    issued(authority, "c", now=NOW + HOUR + GRACE_S)


def test_a_token_is_for_the_name_as_it_stood(authority):
    """Enrolled by other means since, or revoked since: a token from before lets nobody in under that name."""
    record, key = issued(authority, "till")
    authority.enrol("till", BROKER)
    assert judged(authority, record, request_of(record, key)) is EnrolmentCode.NAME_CHANGED
    again, key = issued(authority, "till")
    assert judged(authority, again, request_of(again, key)) is EnrolmentCode.ENROLLED
    authority.revoke("till")
    assert judged(authority, again, request_of(again, key)) is EnrolmentCode.NAME_CHANGED


def test_what_names_a_forgotten_client_goes_with_its_name(authority):
    """The token is unknown from then on, and a newer one would not be granted."""
    authority.enrol("till", BROKER)
    record, key = issued(authority, "till")
    request = request_of(record, key)
    signed = authority.forget("till")
    for name in ("tokens/.0123456789abcdef.json", ".register.json"):
        # A command was killed while it wrote one of these.
        (authority.folder / f"{name}.0123456789abcdef").write_text('{"client_id": "till"}')
    fields = {"number": signed.number, "digest": signed.digest, "reply": OrderReply.OBEYED, "newest": signed.number}
    authority.record_answer(signed, OrderAnswer(federation="mail", **fields), b"answer")
    assert judged(authority, record, request) is EnrolmentCode.TOKEN_UNKNOWN
    files = [path for path in authority.folder.rglob("*") if path.is_file()]
    assert [path for path in files if b"till" in path.read_bytes()] == []
    assert list((authority.folder / "tokens").iterdir()) == []
    assert decide(record, request, authority.register, NOW) is EnrolmentCode.NAME_FORGOTTEN


def test_a_folder_from_before_newer_enrolments_trusts_none_of_its_open_tokens(authority):
    """The federator has seen serials that this copy of the folder never gave: any token may have been used."""
    record, key = issued(authority)
    authority.orders.write(authority.deadline(1, 60.0).order)
    fields = {"number": 0, "digest": bytes(32), "reply": OrderReply.NEWEST, "newest": 0}
    authority.renumber_above(1, OrderAnswer(federation="mail", **fields, newest_serial=0))
    assert judged(authority, record, request_of(record, key)) is EnrolmentCode.ENROLLED
    authority.renumber_above(1, OrderAnswer(federation="mail", **fields, newest_serial=7))
    assert judged(authority, record, request_of(record, key)) is EnrolmentCode.TOKEN_REVOKED


def test_tokens_outlive_the_command(tmp_path):
    folder = tmp_path / "operator"
    with create_authority(folder, "mail", federator=BROKER, operator=BROKER) as authority:
        authority.enrol("other", BROKER)
        record, _ = issued(authority)
    with open_authority(folder) as authority:
        assert authority.tokens.open_of({"till"}, NOW + 1) == [record]
        assert authority.tokens.open_of({"till"}, NOW + HOUR) == []
        assert authority.tokens.open_of({"other"}, NOW + 1) == []
