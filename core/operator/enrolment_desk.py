"""The operator's desk answers devices that enrol themselves with a one-time token.

Each step is on disk before the next one: the token is marked with the device's keys, the broker lets the device in, the
register has it, the answer is stored. A desk that ends at any point continues from there when the device asks again.
"""

import base64
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from foltr.core.errors import MessageError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.operator.authority import Authority
from foltr.core.operator.credentials import BrokerAccess
from foltr.core.operator.token_log import TokenRecord, TokenState, decide, is_enrolled_by
from foltr.core.protocol.enrolment_requests import DeskHead, EnrolmentCode, EnrolmentRequest
from foltr.core.protocol.signed_requests import is_token_holders, read_request, seal_for_device
from foltr.core.protocol.signing import key_from_text
from foltr.core.secure.sealing import can_be_sealed_to

Admit = Callable[[Collection[str]], Mapping[str, BrokerAccess]]


@dataclass(frozen=True)
class DeskReplies:
    """What the desk sends after a batch of requests.

    Attributes:
        answers: signed, by token.
        head: signed, to be retained before an answer is sent; None if no device was enrolled.
        codes: the outcome of each, by token.
    """

    answers: dict[str, bytes] = field(default_factory=dict)
    head: bytes | None = None
    codes: dict[str, EnrolmentCode] = field(default_factory=dict)


def serve(authority: Authority, requests: Mapping[str, bytes], admit: Admit, now: float | None = None) -> DeskReplies:
    """Decide on requests, and enrol the devices that may be.

    Args:
        requests: their bytes, by the token of their topic.
        admit: lets devices in at the broker, by name.
        now: seconds since the epoch.
    """
    now = time.time() if now is None else now
    served = DeskReplies()
    granted: dict[str, TokenRecord] = {}
    for token, payload in requests.items():
        code, record, request = _judge(authority, token, payload, now)
        served.codes[token] = code
        if code is not EnrolmentCode.ENROLLED or record is None or request is None:
            served.answers[token] = authority.tokens.answer(token, payload, code)
        elif record.answer is not None:
            served.answers[token] = base64.b64decode(record.answer)
        elif record.client_id in {other.client_id for other in granted.values()}:
            # Two tokens for one name: decide on the second once the register has the first.
            del served.codes[token]
        else:
            granted[token] = _claim(authority, record, request)
    if not granted:
        return served
    _enrol(authority, list(granted.values()), admit, requests, served)
    return DeskReplies(served.answers, authority.tokens.head(authority.register.next_serial, now), served.codes)


def revoke_stale_tokens(authority: Authority, head: DeskHead) -> int | None:
    """Revoke the tokens that may have been used since the operator's folder was copied.

    Args:
        head: the desk's last message retained at the broker.

    Returns:
        how many; None if the folder is not an older copy.
    """
    if head.next_serial <= authority.register.next_serial:
        return None
    n_revoked = authority.tokens.revoke(
        each for each in authority.tokens.records() if each.issued_at <= head.written_at
    )
    authority.raise_serial(head.next_serial)
    return n_revoked


def _judge(
    authority: Authority, token: str, payload: bytes, now: float
) -> tuple[EnrolmentCode, TokenRecord | None, EnrolmentRequest | None]:
    try:
        request = read_request(payload, authority.federation, token)
    except MessageError:
        return EnrolmentCode.UNREADABLE, None, None
    record = authority.tokens.get(token)
    if record is not None and not is_token_holders(payload, request, key_from_text("token_key", record.token_key)):
        return EnrolmentCode.TOKEN_UNKNOWN, None, None
    if not can_be_sealed_to(request.reply_key):
        return EnrolmentCode.UNREADABLE, None, None
    return decide(record, request, authority.register, now), record, request


def _claim(authority: Authority, record: TokenRecord, request: EnrolmentRequest) -> TokenRecord:
    if record.state is TokenState.CLAIMED:
        return record
    claimed = record.claimed_by(request)
    authority.tokens.put(claimed)
    failpoint(Failpoint.TOKEN_CLAIMED)
    return claimed


def _enrol(
    authority: Authority, granted: list[TokenRecord], admit: Admit, requests: Mapping[str, bytes], served: DeskReplies
) -> None:
    access = admit([record.client_id for record in granted])
    new = [record for record in granted if not is_enrolled_by(record, authority.register)]
    keys = {record.client_id: _device_key(record) for record in new}
    # Making the token decided whether the name may be enrolled again, and nothing has changed since.
    authority.enrol_all({name: access[name] for name in keys}, replace=True, kept=keys)
    failpoint(Failpoint.TOKEN_ENROLLED)
    for record in granted:
        payload = requests[record.token]
        credentials = authority.reissue_credentials(record.client_id, access[record.client_id])
        reply_key = key_from_text("reply_key", record.reply_key or "")
        sealed = seal_for_device(credentials.model_dump_json().encode(), reply_key, payload)
        answer = authority.tokens.answer(record.token, payload, EnrolmentCode.ENROLLED, sealed)
        authority.tokens.put(record.with_state(TokenState.USED, answer=base64.b64encode(answer).decode()))
        served.answers[record.token] = answer
    failpoint(Failpoint.TOKEN_USED)


def _device_key(record: TokenRecord) -> bytes:
    return key_from_text("device_key", record.device_key or "")
