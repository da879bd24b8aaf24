"""A federation with secure sums, small and by hand: its operator, its helpers' keys, and clients who mask vectors."""

import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foltr.core.operator.credentials import BrokerAccess, Credentials
from foltr.core.protocol.codec import encode
from foltr.core.protocol.enrolment import issue_enrolment
from foltr.core.protocol.helper_messages import CheckRequest, HelperMessage, OpenRequest, SetCommitment, position_bits
from foltr.core.protocol.policies import GaussianNoise, HelperKeys, L2NormProof, Policy, cohort_of
from foltr.core.protocol.signed_policies import SignedPolicy, issue_policy
from foltr.core.protocol.signed_tickets import issue_ticket, set_digest, ticket_hash, ticket_name
from foltr.core.protocol.signing import SigningKey, key_to_text
from foltr.core.protocol.tickets import Ticket, UnsealedTicket
from foltr.core.protocol.topics import Topics
from foltr.core.protocol.verify_keys import seal_verify_key
from foltr.core.secure.evaluation import encode_credit, encode_evaluation
from foltr.core.secure.field import from_signed, write_words
from foltr.core.secure.masks import mask_words
from foltr.core.secure.message_proof import prove_message
from foltr.core.secure.sealing import SealingKey, seal_info, seal_seed
from foltr.core.secure.vote_proof import encode_vote

FEDERATION = "mail"
UPDATE_ID = "0123456789abcdef" * 2


@dataclass(frozen=True)
class HelperPair:
    """A helper's private keys; without keys of epochs there is one epoch, which has the sealing key."""

    name: str
    signing_key: SigningKey = field(default_factory=SigningKey.generate)
    sealing_key: SealingKey = field(default_factory=SealingKey.generate)
    epoch_keys: tuple[SealingKey, ...] = ()

    @property
    def public(self) -> HelperKeys:
        keys = [key.public for key in self.epoch_keys or (self.sealing_key,)]
        sealing_key = self.sealing_key.public
        return HelperKeys(name=self.name, signing_key=self.signing_key.public, sealing_key=sealing_key, epoch_keys=keys)


@dataclass(frozen=True)
class MaskingClient:
    name: str
    key: SigningKey
    enrolment: bytes


@dataclass(frozen=True)
class Contribution:
    """What a client sends in a round: a vector that nobody else knows, behind masks, and its proofs."""

    client: MaskingClient
    vector: NDArray[np.int64]
    masked: NDArray[np.uint64]
    ticket: bytes
    proof: NDArray[np.uint64]

    @property
    def words(self) -> NDArray[np.uint64]:
        """(n_values,) all that is masked."""
        return np.concatenate([self.masked, self.proof])


class SecureFederation:
    """Everybody's keys, and a policy, with the fields that are given, under which few clients are enough."""

    def __init__(self, n_helpers: int = 2, dim: int = 3, *, proofs: bool = False, **changed: Any) -> None:
        self.operator = SigningKey.generate()
        self.federator = SigningKey.generate()
        self.helpers = [HelperPair(name) for name in ("north", "south", "east", "west")[:n_helpers]]
        self.dim = dim
        self.proofs = proofs
        self.federator_sealing_key = SealingKey.generate()
        self.verify_key = os.urandom(32)
        self.policy = self.issue(**changed)

    def issue(self, *, proofs: bool | None = None, **changed: Any) -> SignedPolicy:
        """Issue a policy with the fields that are named. All that ask for norm proofs have one verify key."""
        if self.proofs if proofs is None else proofs:
            changed = {"norm_proof": self._sealed_verify_key(**changed), **changed}
        fields: dict[str, Any] = {
            "federation": FEDERATION,
            "version": 1,
            "issued_at": 1000.0,
            "helpers": [helper.public for helper in self.helpers],
            "noise": GaussianNoise(variance=1_000_000),
            "dim": self.dim,
            "bound": 256,
            "n_min": 3,
            "n_max": 2000,
            "n_interactions": 5,
            "max_participations": 20,
            "epoch_s": 10**10,
            "epsilon": 8.0,
            "delta": 1e-6,
        }
        return issue_policy(self.operator, Policy(**{**fields, **changed}))

    def _sealed_verify_key(
        self, *, version: int = 1, helpers: Sequence[HelperKeys] | None = None, **_unused: Any
    ) -> L2NormProof:
        helpers = helpers or [helper.public for helper in self.helpers]
        return seal_verify_key(self.verify_key, FEDERATION, version, helpers, self.federator_sealing_key.public)

    def credentials(self, helper: HelperPair, broker_url: str = "mqtt://127.0.0.1:1883") -> Credentials:
        return Credentials(
            role="helper",
            federation=FEDERATION,
            name=helper.name,
            broker=BrokerAccess(broker_url=broker_url),
            signing_key=helper.signing_key.to_text(),
            enrolment_key=key_to_text(self.operator.public),
            federator_key=key_to_text(self.federator.public),
        )

    def client(self, name: str, serial: int = 1) -> MaskingClient:
        key = SigningKey.generate()
        enrolment = issue_enrolment(self.operator, FEDERATION, name, key.public, serial, 1000.0)
        return MaskingClient(name, key, enrolment)

    def clients(self, n_clients: int) -> list[MaskingClient]:
        return [self.client(f"device-{i}") for i in range(n_clients)]

    def contribute(
        self,
        client: MaskingClient,
        round_number: int = 4,
        participation: int = 1,
        policy: SignedPolicy | None = None,
        signed_by: SigningKey | None = None,
        vector: NDArray[np.int64] | None = None,
        opinion: int = 0,
        votes: Collection[int] | None = None,
        earned: Collection[float] | None = None,
        credited: float = 0.0,
        proof: NDArray[np.uint64] | None = None,
        spoiled: Collection[int] = (),
        epoch: int = 0,
        **changed: Any,
    ) -> Contribution:
        """Mask a vector, and its proof if the policy asks for one, and seal the seeds to the keys of an epoch.

        A device makes ``votes``, all that is beside the vector, of its opinion (-1 worse, 1 better), the means that it
        earned and the credits, and an honest proof; others may be sent. Nobody can open the seals at spoiled places.
        """
        policy = policy or self.policy
        rules = policy.policy
        cohort = cohort_of(policy.hash, rules.cohorts, round_number, client.name)
        if vector is None:
            vector = np.frombuffer(os.urandom(rules.dim), np.int8).astype(np.int64)
        seeds = [os.urandom(32) for _ in rules.helpers]
        means = None if earned is None else list(earned)
        honest = [encode_vote(opinion, rules.vote_weight)]
        honest.append(encode_evaluation(means, rules.evaluation_weight, os.urandom))
        honest.append(encode_credit(credited, rules.credit_weight, os.urandom))
        own = np.concatenate(honest) if votes is None else np.array(list(votes), np.int64)
        summed = np.concatenate([vector, own])
        if proof is None:
            shape = rules.message_shape
            proof = vector[:0] if shape is None else prove_message(summed, shape, os.urandom)
        masked = mask_words(np.concatenate([from_signed(summed), proof.astype(np.uint64)]), seeds)
        fields = {
            "federation": FEDERATION,
            "client_id": client.name,
            "round": round_number,
            "cohort": cohort,
            "policy_hash": policy.hash,
            "update_id": UPDATE_ID,
            "participation": participation,
            "digest": hashlib.sha256(write_words(masked)).digest(),
        } | {name: value for name, value in changed.items() if name != "seals"}
        seals = _seals(UnsealedTicket(**fields), seeds, rules, epoch)
        for place in spoiled:
            seals[place] = bytes(len(seals[place]))
        ticket = issue_ticket(signed_by or client.key, Ticket(**{**fields, "seals": changed.get("seals", seals)}))
        return Contribution(client, vector, masked[: summed.size], ticket, masked[summed.size :])

    def check(
        self, contributions: Sequence[Contribution], helper: str = "north", first: int = 0, **changed: Any
    ) -> CheckRequest:
        tickets = [contribution.ticket for contribution in contributions]
        enrolments = [contribution.client.enrolment for contribution in contributions]
        fields = {**self.about(helper), "first": first, "tickets": tickets, "enrolments": enrolments}
        return CheckRequest(**{**fields, **changed})

    def open(
        self,
        contributions: Sequence[Contribution],
        kept: Sequence[int] | None = None,
        helper: str = "north",
        **changed: Any,
    ) -> OpenRequest:
        positions = list(range(len(contributions)) if kept is None else kept)
        fields = {
            **self.about(helper),
            "n_tickets": len(contributions),
            "kept": position_bits(positions, len(contributions)),
            "digest": set_digest(ticket_hash(contributions[position].ticket) for position in positions),
        }
        return OpenRequest(**{**fields, **changed})

    def agreed(self, request: OpenRequest) -> OpenRequest:
        """Return a request with the commitments of all other helpers to its set."""
        about = {name: getattr(request, name) for name in HelperMessage.model_fields}
        commitments = [
            encode(
                SetCommitment(**{**about, "helper": helper.name}, digest=request.digest),
                Topics(FEDERATION).helper_answers(helper.name),
                request.round,
                helper.signing_key,
            )
            for helper in self.helpers
            if helper.name != request.helper
        ]
        return request.model_copy(update={"commitments": commitments})

    def about(self, helper: str) -> dict[str, Any]:
        about = {"federation": FEDERATION, "helper": helper, "policy_hash": self.policy.hash}
        return {**about, "round": 4, "cohort": 0}


def _seals(unsealed: UnsealedTicket, seeds: Sequence[bytes], rules: Policy, epoch: int) -> list[bytes]:
    named = ticket_name(unsealed)
    pairs = zip(seeds, rules.helpers, strict=True)
    return [seal_seed(seed, helper.epoch_keys[epoch], seal_info(named, helper.name)) for seed, helper in pairs]
