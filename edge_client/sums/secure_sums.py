"""A device takes part in secure sums as often as its ledger allows, once in a round, and logs once why it does not."""

from foltr.core.logs import get_logger
from foltr.core.methods.registry import body_spec
from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement
from foltr.core.protocol.epochs import epoch_of, has_ended
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.policies import allowance_of
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.updates import DenseDelta, ModelUpdate, Vote
from foltr.core.secure.ledger import refusal
from foltr.edge_client.store.ledger import LedgerEntry
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.sums.pinned_policy import PinnedPolicy

log = get_logger(__name__)


class SecureSums:
    """The participations of one device. They depend only on public facts: rounds, policies, and their number so far.

    Args:
        key: signs tickets; None for a device that signs nothing, and so takes no part.
    """

    def __init__(self, client_id: str, key: SigningKey | None, store: DeviceStore, pinned: PinnedPolicy) -> None:
        self._client_id = client_id
        self._key = key
        self._store = store
        self._pinned = pinned
        # The round and policy in which this device takes no further part, so that not each click reads the ledger.
        self._done: tuple[int, bytes] | None = None
        self._told: str | None = None

    def next_participation(self, round_: RoundAnnouncement, model: ModelAnnouncement) -> LedgerEntry | None:
        """Return the ledger entry of a participation in this round; None if it cannot take part.

        Its number is the ledger's last plus one; the federation's count is ignored, since a federator could lie. For a
        lost ledger the helpers' count protects the client.
        """
        policy = self._policy()
        if self._done == (round_.round, policy.hash):
            return None
        spent, allowance = self._store.spent(), allowance_of(policy.policy)
        number = spent.last + 1
        entry = LedgerEntry(number, allowance.charge, round_.round, policy.policy.version, policy.hash)
        cause = self._misfit(policy, round_, model) or refusal(spent, allowance, number)
        if cause is not None:
            self._log_refusal(cause)
        elif not self._took_part(entry):
            return entry
        self._done = (round_.round, policy.hash)
        return None

    def mask(
        self,
        update: ModelUpdate,
        participation: int,
        vote: Vote | None,
        evaluation: Evaluation | None,
        round_: RoundAnnouncement,
    ) -> ModelUpdate:
        """Mask an update for a round under the policy, with everything else it carries."""
        if self._key is None or round_.secure is None:
            raise RuntimeError("nothing is masked without a key, nor for a round that asks for no masks")
        # A device that is under no policy does without masks, and without OpenSSL, which seals them.
        from foltr.edge_client.sums.masked_update import mask_update

        policy, clip_norm = self._policy(), round_.secure.clip_norm
        epoch = epoch_of(policy.policy, round_.opened_at)
        return mask_update(update, participation, policy, clip_norm, self._key, vote, evaluation, epoch=epoch)

    def nothing_learned(self) -> DenseDelta:
        """Return the body of a device that has learned nothing, and takes part all the same."""
        dim = self._policy().policy.dim
        return DenseDelta(dim=dim, values=bytes(4 * dim))

    def _policy(self) -> SignedPolicy:
        if self._pinned.newest is None:
            raise RuntimeError("a device that is under no policy takes part in no secure sum")
        return self._pinned.newest

    def _misfit(self, policy: SignedPolicy, round_: RoundAnnouncement, model: ModelAnnouncement) -> str | None:
        """Say why this policy cannot be followed in this round with this method and these credentials."""
        if self._key is None:
            return "this device has no key to sign tickets with: give it its credentials"
        if has_ended(policy.policy, round_.opened_at):
            return (
                f"policy {policy.version} has ended, and helpers no longer have its keys: the operator must "
                "make another"
            )
        body, dim = body_spec(round_.training, model.ranker), policy.policy.dim
        if body.kind not in ("dense", "part"):
            return f"the method {round_.training.kind} does not send differences of weights"
        return None if body.dim == dim else f"the model has {body.dim} values, and the policy is for {dim}"

    def _took_part(self, entry: LedgerEntry) -> bool:
        of_this = (entry.round, entry.policy_hash)
        return any((each.round, each.policy_hash) == of_this for each in self._store.entries())

    def _log_refusal(self, cause: str) -> None:
        if cause != self._told:
            self._told = cause
            log.warning("participation_refused", client_id=self._client_id, cause=cause)
