"""The desk: wherever it dies, one token makes one device, and the same request gets the same answer."""

import shutil
from contextlib import contextmanager

import pytest

from foltr.core.operator import enrolment_desk
from foltr.core.operator.credentials import BrokerAccess, Credentials
from foltr.core.operator.enrolment_desk import revoke_stale_tokens, serve
from foltr.core.operator.folder import create_authority, open_authority
from foltr.core.operator.token_log import TokenState
from foltr.core.protocol.enrolment import read_enrolment
from foltr.core.protocol.enrolment_requests import MAX_REQUEST_BYTES, EnrolmentCode
from foltr.core.protocol.signed_requests import answer_info, issue_request, read_answer, read_head
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import Privacy
from foltr.core.secure.sealing import SealingKey

BROKER = BrokerAccess(broker_url="mqtt://127.0.0.1:1883")
NOW = 1_000_000.0
HOUR = 3600.0


class CrashError(Exception):
    """The desk ends here."""


@pytest.fixture
def dies_at(monkeypatch):
    @contextmanager
    def dies(step):
        def die(here):
            if here == step:
                raise CrashError

        with monkeypatch.context() as patch:
            patch.setattr(enrolment_desk, "failpoint", die)
            yield

    return dies


class Device:
    def __init__(self, record, token_key):
        self.token, self.token_key = record.token, token_key
        self.key, self.reply_key = SigningKey.generate(), SealingKey.generate()
        self.request = issue_request(token_key, "mail", self.token, self.key, self.reply_key.public)

    def read(self, authority, served):
        """The answer's code, and the credentials in it, if there are some."""
        key = authority.operator.enrolment_public_key
        answer = read_answer(served.answers[self.token], key, "mail", self.token, self.request)
        if not answer.sealed:
            return answer.code, None
        opened = self.reply_key.unseal(answer.sealed, answer_info(self.request))
        return answer.code, Credentials.model_validate_json(opened)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "operator"
    with create_authority(folder, "mail", federator=BROKER, operator=BROKER) as authority:
        authority.enrol("first", BROKER)
    return folder


def devices(folder, *names, lasts_s=HOUR):
    with open_authority(folder) as authority:
        issued = authority.tokens.issue(names, authority.register, lasts_s, NOW)
    return [Device(*issued[name]) for name in names]


class Door:
    """The broker's door: how often each name was let in, with a new password each time."""

    def __init__(self):
        self.admitted = []

    def __call__(self, names):
        self.admitted += names
        return {
            name: BROKER.model_copy(update={"username": name, "password": f"{name} {len(self.admitted)}"})
            for name in names
        }


def served(folder, *asking, door=None, now=NOW + 1):
    with open_authority(folder) as authority:
        return serve(authority, {device.token: device.request for device in asking}, door or Door(), now)


def answer(folder, device, **options):
    done = served(folder, device, **options)
    with open_authority(folder) as authority:
        return device.read(authority, done)


def test_a_device_gets_its_credentials_and_its_key_stays_where_it_is(folder):
    """A lost answer costs another one, and neither a serial nor a password."""
    (device,) = devices(folder, "till")
    code, credentials = answer(folder, device)
    assert code is EnrolmentCode.ENROLLED
    assert (credentials.name, credentials.role, credentials.signing_key) == ("till", "device", None)
    assert credentials.broker.username == "till"
    key = credentials.enrolment_public_key
    enrolment = read_enrolment(credentials.enrolment_bytes, key, "mail", "till")
    assert (enrolment.public_key, enrolment.serial) == (device.key.public, 2)
    (device,) = devices(folder, "other")
    door = Door()
    first = served(folder, device, door=door)
    again = served(folder, device, door=door, now=NOW + 2 * HOUR)
    assert again.answers == first.answers
    assert again.head is None
    assert door.admitted == ["other"]
    with open_authority(folder) as authority:
        assert authority.register.next_serial == 4


@pytest.mark.parametrize("privacy", list(Privacy))
def test_a_device_that_enrols_itself_is_pinned_as_the_folder_says(tmp_path, privacy):
    """The pin is in the enrolment that the answer brings, to the byte when it is made again."""
    folder = tmp_path / "operator"
    with create_authority(folder, "mail", federator=BROKER, operator=BROKER, privacy=privacy):
        pass
    (device,) = devices(folder, "till")
    _, credentials = answer(folder, device)
    assert credentials.is_pinned is (privacy is Privacy.SECURE)
    assert credentials.privacy is None
    with open_authority(folder) as authority:
        assert authority.reissue_credentials("till", BROKER).enrolment == credentials.enrolment


@pytest.mark.parametrize("step", ["token_claimed", "token_enrolled", "token_used"])
def test_a_desk_that_dies_anywhere_goes_on_from_there(folder, step, dies_at):
    """One serial is spent, the device's key is the one in the register, and nobody else gets the token meanwhile."""
    (device,) = devices(folder, "till")
    with dies_at(step), pytest.raises(CrashError):
        served(folder, device)
    with open_authority(folder) as authority:
        thief = Device(authority.tokens.get(device.token), device.token_key)
    assert answer(folder, thief)[0] is EnrolmentCode.TOKEN_USED
    code, credentials = answer(folder, device)
    assert (code, credentials.name) == (EnrolmentCode.ENROLLED, "till")
    with open_authority(folder) as authority:
        assert authority.register.next_serial == 3
        assert authority.tokens.get(device.token).state is TokenState.USED


def test_what_the_operator_does_between_a_crash_and_the_next_request_counts(folder, dies_at):
    """The device was enrolled, its answer was not made, and it was revoked: it is not let in again."""
    (device,) = devices(folder, "till")
    with dies_at("token_enrolled"), pytest.raises(CrashError):
        served(folder, device)
    with open_authority(folder) as authority:
        authority.revoke("till")
    assert answer(folder, device) == (EnrolmentCode.NAME_CHANGED, None)


def test_a_token_for_a_name_that_is_enrolled_replaces_the_device(folder):
    """With a higher serial, the one before void in the roster; a second token was made for the name as it stood."""
    (device,) = devices(folder, "first")
    code, credentials = answer(folder, device)
    assert code is EnrolmentCode.ENROLLED
    with open_authority(folder) as authority:
        assert authority.register.enrolled["first"].serial == 2
        assert authority.register.revoked == {"first": 2}
    assert read_enrolment(credentials.enrolment_bytes, credentials.enrolment_public_key, "mail", "first").serial == 2
    one, two = devices(folder, "till")[0], devices(folder, "till")[0]
    both = served(folder, one, two)
    assert set(both.answers) == {one.token}
    assert answer(folder, two) == (EnrolmentCode.NAME_CHANGED, None)


def test_a_batch_is_one_visit_to_the_broker(folder):
    """Twenty devices that start together cost one change of its files."""
    asking, visits = devices(folder, *(f"till-{i}" for i in range(20))), []
    done = served(folder, *asking, door=lambda names: visits.append(names) or dict.fromkeys(names, BROKER))
    assert len(visits) == 1
    assert set(done.codes.values()) == {EnrolmentCode.ENROLLED}


def garbled(device):
    yield b"", EnrolmentCode.UNREADABLE
    yield b"\xff" * 40, EnrolmentCode.UNREADABLE
    yield device.request[:-1], EnrolmentCode.UNREADABLE
    yield device.request + bytes(MAX_REQUEST_BYTES), EnrolmentCode.UNREADABLE
    yield device.request[:-1] + bytes([device.request[-1] ^ 1]), EnrolmentCode.TOKEN_UNKNOWN
    other = SigningKey.generate()
    yield issue_request(other, "mail", device.token, device.key, device.reply_key.public), EnrolmentCode.TOKEN_UNKNOWN
    elsewhere = issue_request(device.token_key, "web", device.token, device.key, device.reply_key.public)
    yield elsewhere, EnrolmentCode.UNREADABLE
    yield issue_request(device.token_key, "mail", device.token, device.key, bytes(32)), EnrolmentCode.UNREADABLE


def test_what_is_no_request_of_the_tokens_holder_uses_up_nothing(folder):
    """It is answered, and the token stays open; a name is not bound to a key that its device does not have."""
    (device,) = devices(folder, "till")
    for payload, code in garbled(device):
        with open_authority(folder) as authority:
            assert serve(authority, {device.token: payload}, Door(), NOW).codes == {device.token: code}
            assert authority.tokens.get(device.token).state is TokenState.OPEN
    assert answer(folder, device)[0] is EnrolmentCode.ENROLLED
    (device,) = devices(folder, "till")
    forged = issue_request(device.token_key, "mail", device.token, _Claims(device.key), device.reply_key.public)
    with open_authority(folder) as authority:
        assert serve(authority, {device.token: forged}, Door(), NOW).codes[device.token] is EnrolmentCode.TOKEN_UNKNOWN


class _Claims:
    def __init__(self, key):
        self.public, self.sign = key.public, SigningKey.generate().sign


def test_an_older_copy_of_the_folder_does_not_let_a_used_token_count_again(folder, tmp_path):
    """By the head that the desk had retained; tokens that were made after it stay good, and no serial comes twice."""
    (device,) = devices(folder, "till")
    shutil.copytree(folder, tmp_path / "copy")
    head = served(folder, device).head
    copy = tmp_path / "copy"
    with open_authority(copy) as authority:
        later = Device(*authority.tokens.issue(["new"], authority.register, HOUR, NOW + 60)["new"])
        known = read_head(head, authority.operator.enrolment_public_key, "mail")
        assert revoke_stale_tokens(authority, known) == 1
        assert revoke_stale_tokens(authority, known) is None
        thief = Device(authority.tokens.get(device.token), device.token_key)
    assert answer(copy, thief) == (EnrolmentCode.TOKEN_REVOKED, None)
    code, credentials = answer(copy, later, now=NOW + 61)
    assert code is EnrolmentCode.ENROLLED
    assert read_enrolment(credentials.enrolment_bytes, credentials.enrolment_public_key, "mail", "new").serial == 3
