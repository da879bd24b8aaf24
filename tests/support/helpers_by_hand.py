"""Helpers in one process, each at its real desk with a store in a file: tests say what goes wrong with them."""

from pathlib import Path
from typing import TypeVar

from support.secure_cohorts import FEDERATION, HelperPair, SecureFederation

from foltr.core.protocol.codec import decode, encode, open_envelope
from foltr.core.protocol.helper_messages import CheckRequest, HelperMessage, OpenRequest
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics
from foltr.helper.request_handler import RequestHandler
from foltr.helper.store import HelperStore

TOPICS = Topics(FEDERATION)

K = TypeVar("K", bound="PlayedHelper")


class PlayedHelper:
    """One helper that knows the federation's policy, and may forget what it was shown as soon as it has answered."""

    def __init__(self, federation: SecureFederation, pair: HelperPair, folder: Path) -> None:
        self.pair = pair
        self.loses_tickets = False
        self._federator: SigningKey = federation.federator
        self._credentials = federation.credentials(pair)
        self.store = HelperStore(folder / f"{pair.name}.sqlite", f"{FEDERATION}/{pair.name}", exclusive=True)
        with self.store.transaction() as cursor:
            key = pair.sealing_key
            cursor.execute("INSERT INTO sealing_keys (public, private) VALUES (?, ?)", (key.public, key.private))
        self._desk = RequestHandler(self._credentials, self.store)
        self.hear(federation.policy)

    @property
    def topic(self) -> str:
        return TOPICS.helper_answers(self.pair.name)

    def hear(self, policy: SignedPolicy) -> None:
        assert self._desk.handle(TOPICS.policy, policy.signed) == []

    def answer(self, request: CheckRequest | OpenRequest) -> list[bytes]:
        self._desk.noise.tick()
        self._desk.noise.release()
        topic = TOPICS.helper_requests(self.pair.name)
        answers = self._desk.handle(topic, encode(request, topic, 1, self._federator))
        if self.loses_tickets:
            self.lose_tickets()
        return [said for payload in answers for said in self._said(request, payload)]

    def _said(self, request: CheckRequest | OpenRequest, payload: bytes) -> list[bytes]:
        message = decode(payload, MESSAGE_TYPES[open_envelope(payload).kind])
        assert isinstance(message, HelperMessage)
        said = self.alter(request, message)
        if said is message:
            return [payload]
        return [] if said is None else [encode(said, self.topic, 1, self.pair.signing_key)]

    def alter(self, _request: CheckRequest | OpenRequest, message: HelperMessage) -> HelperMessage | None:
        """Return what is said in the place of what the desk says; who lies says something else, or nothing."""
        return message

    def lose_tickets(self) -> None:
        self._write("DELETE FROM checked_tickets")

    def lose_policies(self) -> None:
        """Know no policy, until it hears of one."""
        self._write("DELETE FROM policies")
        self._desk = RequestHandler(self._credentials, self.store)

    def has_opened(self, round_number: int) -> None:
        """Have opened a sum of this round, of another set than any that it will be asked for."""
        values = (round_number, 0, bytes(32), bytes(32), bytes(24))
        self._write(
            "INSERT INTO committed_sets (round, cohort, policy_hash, digest, sum) VALUES (?, ?, ?, ?, ?)", values
        )

    def is_restored(self, *, restored: bool = True) -> None:
        """Have a store that is an old copy; or, where False, one of its own again."""
        self._write("DELETE FROM meta WHERE key = 'restored'")
        if restored:
            self.store.set_meta("restored", b"round 4")

    def has_counted(self, client_id: str, spent: int) -> None:
        """Have counted so many participations of a client."""
        client = self.store._pseudonym(client_id)  # noqa: SLF001 (what a store that went on would know)
        self._write("INSERT INTO clients (client, participation) VALUES (?, ?)", (client, spent))

    def counted(self, client_id: str) -> int:
        client = self.store._pseudonym(client_id)  # noqa: SLF001
        return int(self.store.rows("SELECT participation FROM clients WHERE client = ?", (client,))[0][0])

    def _write(self, statement: str, values: tuple[object, ...] = ()) -> None:
        with self.store.transaction() as cursor:
            cursor.execute(statement, values)


def play(federation: SecureFederation, folder: Path) -> list[PlayedHelper]:
    return [PlayedHelper(federation, pair, folder) for pair in federation.helpers]


def turned(helper: PlayedHelper, kind: type[K], **more: object) -> K:
    other = kind.__new__(kind)
    other.__dict__ = {**helper.__dict__, **more}
    return other
