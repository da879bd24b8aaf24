"""A helper's desk takes each message as it arrives and returns the answers.

It waits for the disk, so it runs in a separate thread beside the connection. Only what the operator, the federator or
this helper has signed changes anything.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from foltr.core.errors import DataError, MessageError
from foltr.core.logs import get_logger
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.codec import Envelope, encode, open_envelope
from foltr.core.protocol.helper_messages import (
    CheckAnswer,
    CheckRequest,
    HelperMessage,
    HelperRefusal,
    HelperRefusalCode,
    HelperRequest,
    OpenRequest,
    SetCommitment,
    tickets_of_page,
)
from foltr.core.protocol.operator_keys import OperatorKeys
from foltr.core.protocol.policies import NEW_POLICY
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_commitments import read_commitment
from foltr.core.protocol.signed_tickets import set_digest, ticket_hash
from foltr.core.protocol.topics import Topics
from foltr.core.secure.field import write_words
from foltr.core.secure.masks import open_masks
from foltr.helper.checking import answer_proofs, check_page, read_page, refuse_page
from foltr.helper.measures import HelperMeasures
from foltr.helper.noise_pool import NoisePool
from foltr.helper.opening import Commit, OpenSet, answer_parts, decide_open, echoed_fields, find_missing
from foltr.helper.store import HelperStore
from foltr.helper.terms import Refusal, Terms, keys_before, keys_overdue
from foltr.helper.trust import HelperTrust

log = get_logger(__name__)

R = TypeVar("R", CheckRequest, OpenRequest)


class RequestHandler:
    """One helper at work on its store.

    Args:
        credentials: the helper's: its signing key and the keys it trusts.
        noise: noise drawn ahead; the caller ticks it by the clock (`NoisePool.tick`).
        now: this helper's own clock, in epoch seconds; decides when keys of past epochs are destroyed.

    Attributes:
        commitment: the newest signed commitment, to be retained before it is answered; None before the first.
    """

    def __init__(
        self,
        credentials: Credentials,
        store: HelperStore,
        noise: NoisePool | None = None,
        measures: HelperMeasures | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        topics = Topics(credentials.federation)
        self._name = credentials.name
        self._federation = credentials.federation
        self._key = credentials.key
        self._store = store
        self.noise = noise or NoisePool()
        self._now = now
        self._measures = measures or HelperMeasures(credentials.federation, credentials.name)
        self._trust = HelperTrust(credentials, store)
        self.noise.serve(self._trust.active_policies())
        self._n_ignored: Counter[str] = Counter()
        self._asked_on = topics.helper_requests(self._name)
        self._answers_on = topics.helper_answers(self._name)
        self._policy_on = topics.policy
        self._commitment_on = topics.helper_commitment(self._name)
        self.commitment: bytes | None = None
        self._n_overdue: dict[bytes, int] = {}
        self.destroy_overdue_keys()

    @property
    def operator(self) -> OperatorKeys:
        """Whom this helper believes as the operator."""
        return self._trust.operator

    @property
    def restored(self) -> str | None:
        """Why this store may open nothing more, and what to do next; None unless the store is an old copy."""
        missing = self._store.meta("restored")
        if missing is None:
            return None
        return (
            f"the store of {self._name} is an old copy, or a new one that replaces a lost one: {missing.decode()}. "
            f"It opens nothing any longer. Run `foltr helper enrol {self._name} --replace`, start with an empty "
            f"store, then `foltr helper keys`, `{NEW_POLICY}`"
        )

    @property
    def authorities(self) -> bytes | None:
        """The stored list of the operator's authorities (`foltr.broker.trusted_cas`); None before the first."""
        return self._store.meta("authorities")

    def keep_authorities(self, kept: bytes) -> None:
        """Keep the operator's list of authorities."""
        self._store.set_meta("authorities", kept)

    def handle(self, topic: str, payload: bytes) -> list[bytes]:
        """Take a message; return what to publish, in this order, on this helper's answer topic."""
        self.destroy_overdue_keys()
        try:
            if topic == self._asked_on:
                return self._answer(payload)
            if topic == self._commitment_on:
                self._check_own_commitment(payload)
                return []
            self._trust.accept(topic, payload)
            if topic == self._policy_on:
                self.noise.serve(self._trust.active_policies())
        except MessageError as error:
            self._n_ignored[error.code] += 1
            self._measures.ignored.add(of=error.code)
            n = self._n_ignored[error.code]
            # Log ever more seldom: on an open broker anybody could fill the log.
            if n & (n - 1) == 0:
                log.warning("message_ignored", topic=topic, code=error.code, detail=error.detail, n_ignored=n)
        return []

    def destroy_overdue_keys(self) -> None:
        """Destroy the keys of epochs that have ended by this helper's own clock."""
        for policy in self._trust.policies:
            keys = keys_overdue(policy.policy, self._name, self._now())
            if len(keys) > self._n_overdue.get(policy.hash, 0):
                self._note_destroyed(self._store.destroy_keys(keys), policy.policy.version)
                self._n_overdue[policy.hash] = len(keys)

    def _note_destroyed(self, n_keys: int, version: int) -> None:
        if n_keys:
            self._measures.keys_destroyed.add(n_keys)
            self.noise.serve(self._trust.active_policies())
            log.info("sealing_keys_destroyed", n_keys=n_keys, version=version)

    def _answer(self, payload: bytes) -> list[bytes]:
        envelope = open_envelope(payload)
        if not envelope.is_signed_by(self._trust.federator_key, self._asked_on):
            raise MessageError(ReceiptCode.BAD_SIGNATURE, "the request is not signed by the federator")
        if envelope.kind == CheckRequest.kind_name:
            answers = [self._check(self._read(envelope, CheckRequest))]
        else:
            answers = self._open(self._read(envelope, OpenRequest))
        # Numbered by round, so that the same answer is the same bytes.
        signed = [encode(answer, self._answers_on, answer.round, self._key) for answer in answers]
        if answers and isinstance(answers[0], SetCommitment):
            self.commitment = signed[0]
        return signed

    def _check_own_commitment(self, payload: bytes) -> None:
        """Check that the store has what this helper has signed. A commitment under an older key is a predecessor's."""
        if not payload:
            return
        signed = read_commitment(payload, self._key.public, self._federation, self._name)
        known = self._store.committed_set(signed.round, signed.cohort)
        missing = find_missing(signed, known, self._store.newest_round())
        if missing is not None and self._store.meta("restored") is None:
            self._store.set_meta("restored", missing.encode())
            log.error("store_restored", detail=self.restored)

    def _check(self, request: CheckRequest) -> HelperMessage:
        digest = set_digest(map(ticket_hash, request.tickets))
        known = self._store.committed_set(request.round, request.cohort)
        is_opened = known is not None and known.values is not None
        refusal = self._refusal_of_restored() or refuse_page(request, self._store.newest_round(), is_opened)
        terms = refusal or self._terms(request)
        if isinstance(terms, Refusal):
            return self._refuse(request, digest, terms)
        if len(request.tickets) > (most := tickets_of_page(terms.policy.policy)):
            raise MessageError(ReceiptCode.MALFORMED, f"a page of {len(request.tickets)} tickets, above {most}")
        claimed = read_page(request)
        clients = self._store.known_clients(request, {one.ticket.client_id for one in claimed if one is not None})
        page = check_page(request, claimed, terms, self._trust.operator, self._trust.void, clients)
        own_key = terms.policy.policy.helpers[terms.place].sealing_key
        self._note_destroyed(self._store.keep_page(request, page.good, own_key), terms.policy.policy.version)
        self._measures.tickets_good.add(len(page.good))
        for refused in page.refused:
            self._measures.tickets_refused.add(of=refused.fault)
        log.info(
            "sum_tickets_checked",
            round=request.round,
            cohort=request.cohort,
            first=request.first,
            n_good=len(page.good),
            n_refused=len(page.refused),
        )
        proofs = answer_proofs(page.good, terms)
        return CheckAnswer(
            **echoed_fields(request), first=request.first, digest=digest, refused=page.refused, proofs=proofs
        )

    def _open(self, request: OpenRequest) -> list[HelperMessage]:
        decision = self._refusal_of_restored() or decide_open(
            request,
            self._store.committed_set(request.round, request.cohort),
            self._store.newest_round(),
            self._terms(request),
            self._store.checked_hashes(request),
        )
        if isinstance(decision, Refusal):
            return [self._refuse(request, request.digest, decision)]
        if isinstance(decision, Commit):
            policy = decision.terms.policy.policy
            past_keys = keys_before(policy, self._name, request.epoch)
            n_destroyed = self._store.commit_to(request, past_keys)
            log.info("client_set_committed", round=request.round, cohort=request.cohort)
            self._note_destroyed(n_destroyed, policy.version)
            return [self._commitment(request)]
        values = self._open_set(request, decision.terms) if isinstance(decision, OpenSet) else decision.values
        if isinstance(decision, OpenSet) and values is None:
            return []
        if values is None or not request.commitments:
            return [self._commitment(request)]
        return list(answer_parts(request, values))

    def _terms(self, request: HelperRequest) -> Terms | Refusal:
        return self._trust.terms(request.policy_hash, request.epoch, self._now())

    def _commitment(self, request: OpenRequest) -> SetCommitment:
        return SetCommitment(**echoed_fields(request), digest=request.digest)

    def _refusal_of_restored(self) -> Refusal | None:
        detail = self.restored
        return None if detail is None else Refusal(HelperRefusalCode.STORE_RESTORED, detail)

    def _open_set(self, request: OpenRequest, terms: Terms) -> bytes | None:
        """Open a set; return None if no noise is ready: the federator asks again."""
        noise = self.noise.take(terms.policy)
        if noise is None:
            log.info("noise_pending", round=request.round, cohort=request.cohort)
            return None
        seeds = (_seed(terms, seal, info) for seal, info in self._store.seals(request))
        values = write_words(open_masks(seeds, noise))
        self._store.keep_sum(request, values, terms.policy.policy.max_participations)
        self._measures.sums_opened.add()
        log.info("sum_opened", round=request.round, cohort=request.cohort, n_clients=len(request.positions))
        return values

    def _refuse(self, request: HelperMessage, digest: bytes, refusal: Refusal) -> HelperRefusal:
        self._measures.refused.add(of=refusal.code)
        log.warning(
            "request_refused",
            round=request.round,
            cohort=request.cohort,
            code=refusal.code.value,
            detail=refusal.detail,
        )
        return HelperRefusal(**echoed_fields(request), digest=digest, code=refusal.code, detail=refusal.detail)

    def _read(self, envelope: Envelope, expected: type[R]) -> R:
        request = envelope.read(expected)
        if (request.federation, request.helper) != (self._federation, self._name):
            raise MessageError(ReceiptCode.CLIENT_MISMATCH, f"a request to {request.helper} of {request.federation}")
        return request


def _seed(terms: Terms, seal: bytes, info: bytes) -> bytes:
    seed = terms.sealing_key.open(seal, info)
    if seed is None:
        raise DataError("helper store: a seal that was checked does not open; is the file damaged?")
    return seed
