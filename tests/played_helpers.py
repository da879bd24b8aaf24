"""Helpers played in one process: the rules of `helper`, with a dictionary in the place of its store."""

from dataclasses import dataclass, field

from secure_cohorts import FEDERATION, HelperPair, SecureFederation

from foltr.protocol.codec import encode
from foltr.protocol.fields import Message
from foltr.protocol.helper_messages import CheckAnswer, CheckRequest, HelperRefusal, OpenRequest
from foltr.protocol.roster import Roster
from foltr.protocol.signed_policies import SignedPolicy
from foltr.protocol.signed_tickets import set_digest, ticket_hash
from foltr.protocol.topics import Topics
from helper.checking import GoodTicket, KnownClient, check_page, read_page, refuse_page
from helper.opening import OpenedSum, OpenSet, answer_parts, decide_open, sum_for
from helper.terms import Refusal, Terms, VoidEnrolments, find_terms
from helper.verifying import answer_proofs

TOPICS = Topics(FEDERATION)


@dataclass
class PlayedHelper:
    """One helper.

    Attributes:
        policies: those that have reached it.
        checked: the good tickets by round and cohort, then by position.
        opened: what it has answered, by round and cohort; never anything else.
        spent: how many participations each client has spent in sums that were opened.
    """

    pair: HelperPair
    operator_key: bytes
    policies: list[SignedPolicy]
    roster: Roster | None = None
    checked: dict[tuple[int, int], dict[int, GoodTicket]] = field(default_factory=dict)
    opened: dict[tuple[int, int], OpenedSum] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        return TOPICS.helper_answers(self.pair.name)

    def answer(self, request: CheckRequest | OpenRequest) -> list[bytes]:
        """Answer a request, as it goes over the wire."""
        terms = self._terms(request)
        if isinstance(request, CheckRequest):
            return [self._signed(self._check(request, terms))]
        return [self._signed(each) for each in self._open(request, terms)]

    def _signed(self, message: Message) -> bytes:
        return encode(message, self.topic, 1, self.pair.signing_key)

    def _terms(self, request: CheckRequest | OpenRequest) -> Terms | Refusal:
        policy = next((each for each in self.policies if each.hash == request.policy_hash), None)
        keys = {self.pair.sealing_key.public: self.pair.sealing_key}
        return find_terms(policy, self.pair.name, self.pair.signing_key.public, keys)

    def _check(self, request: CheckRequest, terms: Terms | Refusal) -> Message:
        digest = set_digest(ticket_hash(ticket) for ticket in request.tickets)
        place = request.round, request.cohort
        newest = max((number for number, _ in self.opened), default=None)
        refusal = terms if isinstance(terms, Refusal) else refuse_page(request, newest, place in self.opened)
        if isinstance(terms, Refusal) or refusal is not None:
            return _refused(request, digest, refusal)
        claimed = read_page(request)
        known = {ticket.ticket.client_id: self._known(request, ticket.ticket.client_id) for ticket in claimed if ticket}
        page = check_page(request, claimed, terms, self.operator_key, VoidEnrolments(self.roster), known)
        kept = self.checked.setdefault(place, {})
        on_page = range(request.first, request.first + len(request.tickets))
        moved = {good.client_id for good in page.good}
        for position in [at for at, good in kept.items() if at in on_page or good.client_id in moved]:
            del kept[position]
        kept |= {good.position: good for good in page.good}
        proofs = answer_proofs(page.good, terms)
        return CheckAnswer(**_about(request), first=request.first, digest=digest, refused=page.refused, proofs=proofs)

    def _known(self, request: CheckRequest, client_id: str) -> KnownClient:
        on_page = range(request.first, request.first + len(request.tickets))
        kept = self.checked.get((request.round, request.cohort), {})
        elsewhere = (good.hash for at, good in kept.items() if good.client_id == client_id and at not in on_page)
        return KnownClient(self.spent.get(client_id, 0), next(elsewhere, None))

    def _open(self, request: OpenRequest, terms: Terms | Refusal) -> list[Message]:
        place = request.round, request.cohort
        kept = self.checked.get(place, {})
        hashes = {position: good.hash for position, good in kept.items()}
        newest = max((number for number, _ in self.opened), default=None)
        decided = decide_open(request, self.opened.get(place), newest, terms, hashes)
        if isinstance(decided, Refusal) or isinstance(terms, Refusal):
            return [_refused(request, request.digest, decided)]
        if isinstance(decided, OpenSet):
            good = [kept[position] for position in decided.positions]
            seeds = [self.pair.sealing_key.open(each.seal, each.info) for each in good]
            values = sum_for(terms.policy.policy, [seed for seed in seeds if seed is not None])
            decided = self.opened[place] = OpenedSum(request.policy_hash, request.digest, values)
            for each in good:
                self.spent[each.client_id] = max(self.spent.get(each.client_id, 0) + 1, each.participation)
        return list(answer_parts(request, decided))


def play(federation: SecureFederation) -> list[PlayedHelper]:
    """Make the helpers of a federation, who know its policy."""
    return [PlayedHelper(pair, federation.operator.public, [federation.policy]) for pair in federation.helpers]


def _refused(request: CheckRequest | OpenRequest, digest: bytes, refusal: object) -> Message:
    assert isinstance(refusal, Refusal)
    return HelperRefusal(**_about(request), digest=digest, code=refusal.code, detail=refusal.detail)


def _about(request: CheckRequest | OpenRequest) -> dict[str, object]:
    return {name: getattr(request, name) for name in ("federation", "helper", "policy_hash", "round", "cohort")}
