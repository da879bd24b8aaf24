"""The state of a federation's single writer: members, the open round, the newest model. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from foltr.core.errors import SettingsError
from foltr.core.protocol.client_selection import cutoff, round_seed
from foltr.core.protocol.operator_keys import is_current_or_former_key, trusted_in_storage
from foltr.core.protocol.orders import AskNewest, RevokeClient, RotateEnrolmentKey, RotateKey
from foltr.core.protocol.paces import latest_pause_s
from foltr.core.protocol.signed_orders import read_order
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import Membership, OrderOutcome, Pacing
from foltr.federator.clock import to_datetime
from foltr.federator.closing.stored_rules import stored_parameters
from foltr.federator.deciding.members import Members
from foltr.federator.pace import PaceSteering
from foltr.federator.plan import FederationPlan
from foltr.federator.round import Aggregate, Round, RoundPolicy, SelectedClients
from foltr.federator.secure_terms import SecureTerms
from foltr.storage.erasure_records import HeldReset
from foltr.storage.records import ClientRow, ModelRow, NewOrder, RoundOpening
from foltr.storage.restored_records import RestoredVersion


class FederationState:
    """The state of one federation, by which messages are decided.

    Attributes:
        round: the open round; None once the plan's last one has ended.
        ended: the newest round that has ended here.
        model_version: of the newest model.
        oldest_base: the oldest model that updates may be based on: older ones may contain what was unlearned since.
        anchor: the model that devices compare the newest with; None without comparisons.
        restored: the restored models, oldest first: each took back the models between it and its original.
        model_hashes: by version, of the newest models (`foltr.core.protocol.fields.model_hash`).
        last_order: the number of the operator's newest order that is stored with its outcome; its digest.
        held_reset: the unlearning job that waits for the operator's order, or None.
        pace: how often devices visit; None: they stay connected.
        policy: the operator's newest known one; None without secure sums.
        key_sequence: how often the operator has replaced the federator's key; the newest one, if any.
        operator_sequence: how often the operator's enrolment key was rotated; the newest one, if any.
    """

    def __init__(self, plan: FederationPlan) -> None:
        self.plan = plan
        self.pace = None if plan.pace is None else PaceSteering(plan.pace, plan.policy.max_time_s)
        self.members = Members(plan.federation, plan.enrolment_key, comes_by=plan.pace is not None)
        self.round: Round | None = None
        self.ended: Round | None = None
        self.model_version = 0
        self.oldest_base = 0
        self.anchor: ModelRow | None = None
        self.restored: list[RestoredVersion] = []
        self.model_hashes: dict[int, bytes] = {}
        self.selection_seed = b""
        self.last_order = 0
        self.last_digest: bytes | None = None
        self.key_sequence = 0
        self.federator_key: bytes | None = None
        self.operator_sequence = 0
        self.operator_key: bytes | None = None
        self.policy: SignedPolicy | None = None
        self.held_reset: HeldReset | None = None

    @property
    def federation(self) -> str:
        return self.plan.federation

    @property
    def oldest_served(self) -> int:
        """The oldest model since the last was withdrawn: by unlearning, or because an older one was restored."""
        return max(self.oldest_base, *(each.version for each in self.restored), 0)

    @property
    def current_round(self) -> Round:
        """The open round, or the last one if no other follows: it answers ``late`` and ``duplicate``."""
        current = self.round or self.ended
        if current is None:
            raise RuntimeError("the federation has no round yet")
        return current

    # --- rounds -------------------------------------------------------------------------------------------

    def open_round(
        self, number: int, base_version: int, now: float, anchor: ModelRow | None = None
    ) -> tuple[Round, RoundOpening]:
        """Make a round that is about to open, and its row; it becomes current with `advance_to`."""
        policy = self._round_policy()
        selection = self._select(number, now)
        terms = self._terms()
        opened = Round.open(number, base_version, policy, now, selection, terms)
        return opened, RoundOpening(
            number=number,
            base_version=base_version,
            min_clients=policy.min_clients,
            max_clients=policy.max_clients,
            min_time_s=policy.min_time_s,
            max_time_s=policy.max_time_s,
            opened_at=to_datetime(now),
            closes_at=to_datetime(opened.closes_at),
            pacing=policy.pacing,
            staleness_limit=policy.staleness_limit,
            staleness_exponent=policy.staleness_exponent,
            selection_seed=None if selection is None else selection.seed,
            selection_cutoff=None if selection is None else selection.cutoff,
            n_selected=None if selection is None else selection.n_selected,
            n_eligible=None if selection is None else selection.n_eligible,
            aggregation=policy.rule.text,
            byzantine=policy.rule.byzantine,
            aggregation_parameters=stored_parameters(policy.rule),
            aggregation_fallback=policy.rule.fallback,
            policy_hash=None if terms is None else terms.policy.hash,
            clip_norm=None if terms is None else terms.clip_norm,
            anchor_version=None if anchor is None else anchor.version,
            period_s=None if self.pace is None else self.pace.period_s,
        )

    def _round_policy(self) -> RoundPolicy:
        """The policy of the next round: as planned, with the target and the deadline of the devices' pace."""
        policy = self.plan.policy
        if self.pace is None:
            return policy
        return replace(policy, max_time_s=self.pace.deadline_s, fills=True)

    # --- the pace -----------------------------------------------------------------------------------------

    def note_seen(self, client_ids: Iterable[str], now: float, *, is_visit: bool) -> None:
        """Note that these clients were seen, if devices visit.

        Args:
            is_visit: they have connected; else they have contributed.
        """
        if self.pace is None:
            return
        for client_id in client_ids:
            client = self.members.find(client_id)
            if client is not None:
                client.expected_by = self.pace.expect_again(client.expected_by, now, is_visit=is_visit)

    def resume_pace(self, rows: Iterable[ClientRow], period_s: float | None, now: float) -> None:
        """Continue with the last announced pace, and expect members later by the time without a federator.

        Args:
            rows: of the clients.
            period_s: of the newest round; None: devices stayed connected, and connected ones will now hear of the pace.
        """
        members = [row for row in rows if row.membership is Membership.JOINED and (period_s is not None or row.online)]
        if self.plan.pace is None or not members:
            return
        self.pace = PaceSteering(self.plan.pace, self.plan.policy.max_time_s, period_s)
        paused_s = now - max(row.last_seen_at for row in members).timestamp()
        for row in members:
            client = self.members.find(row.client_id)
            if client is not None:
                last_seen = now - paused_s if period_s is None else row.last_seen_at.timestamp()
                client.expected_by = self.pace.restore(last_seen, paused_s)
        self.pace.steer(0, now)

    def time_to_come_s(self, at_least_s: float) -> float:
        """How long to wait for a client that may have just left, in seconds."""
        return at_least_s if self.pace is None else max(at_least_s, latest_pause_s(self.pace.period_s))

    def steer(self, now: float) -> None:
        """Recompute the pace from the clients seen and the open round's updates."""
        if self.pace is not None:
            contributions = {} if self.round is None else self.round.contributions
            self.note_seen(contributions, now, is_visit=False)
            self.pace.steer(len(contributions), now)

    @property
    def asks_for_votes(self) -> bool:
        """Whether devices compare the newest model with an anchor, in the next round."""
        return self.plan.asks_for_votes(None if self.policy is None else self.policy.policy)

    def _terms(self) -> SecureTerms | None:
        """The terms of the next secure sum; None in a trusted federation."""
        secure = self.plan.secure
        if secure is None or self.policy is None:
            return None
        return secure.terms(self.policy, self.plan.training)

    def next_round(
        self, base_version: int, now: float, anchor: ModelRow | None = None
    ) -> tuple[Round | None, RoundOpening | None]:
        """Make the round after the current one; (None, None) if that is the plan's last."""
        number = self.current_round.number
        self.steer(now)
        return (None, None) if self.is_last(number) else self.open_round(number + 1, base_version, now, anchor)

    def advance_to(self, following: Round | None, model_version: int, anchor: ModelRow | None = None) -> None:
        """Continue with the next round: the open one has ended, and that is stored."""
        self.ended, self.round, self.model_version, self.anchor = self.round, following, model_version, anchor

    def serve_model(self, model_version: int, anchor: ModelRow | None = None) -> None:
        """Set another newest model while no round is open."""
        self.model_version, self.anchor = model_version, anchor

    def add_model_hashes(self, hashes: Mapping[int, bytes]) -> None:
        """Add the hashes of these versions' weights, for updates based on them."""
        self.model_hashes = {
            version: model_hash
            for version, model_hash in (self.model_hashes | dict(hashes)).items()
            if version >= self.oldest_known
        }

    @property
    def oldest_known(self) -> int:
        """The oldest model that an update, or the newest round, may be based on."""
        return min(self.model_version - self.plan.policy.staleness_limit, self.current_round.base_version)

    def fills_round(self, now: float) -> bool:
        """Whether the open round has enough updates to stop collecting."""
        return self.round is not None and self.round.next_step(now) == Aggregate()

    def is_due(self, now: float) -> bool:
        """Whether the open round should end."""
        return self.round is not None and self.round.next_step(now) is not None

    def is_idle(self, anchor: ModelRow | None, now: float) -> bool:
        """Whether the next round would equal the open one, and no member is online to take part in either.

        If members are online and none contributed, that is worth a row, so that somebody can find out why. A plan with
        a last round counts every round. Rounds are equal only if they ask every client: otherwise the same few would be
        selected again and again, and may never come back.

        Args:
            anchor: of the next round.
        """
        current = self.round
        return (
            current is not None
            and not current.contributions
            and self.plan.stop_after_round is None
            and next(self.members.present(now), None) is None
            and current.policy == self._round_policy()
            and current.terms == self._terms()
            and current.asks_all
            and (anchor is None) == (self.anchor is None)
        )

    def is_last(self, number: int) -> bool:
        return self.plan.stop_after_round is not None and number >= self.plan.stop_after_round

    def _select(self, number: int, now: float) -> SelectedClients | None:
        policy = self.plan.policy
        if policy.n_wanted is None or policy.pacing is not Pacing.DEADLINE:
            return None
        online = list(self.members.present(now))
        seed = round_seed(self.selection_seed, number)
        return SelectedClients(seed, cutoff(seed, online, policy.n_wanted), policy.n_wanted, len(online))

    # --- orders -------------------------------------------------------------------------------------------

    def restore_orders(self, rows: Sequence[NewOrder]) -> None:
        """Load the operator's stored orders: revocations since the roster, and the federator's key."""
        enrolment_key = trusted_in_storage(self.plan.enrolment_key)
        for row in rows:
            self.note_order(row)
            if enrolment_key is None or row.payload is None or row.outcome is not OrderOutcome.OBEYED:
                continue
            read = read_order(row.payload, enrolment_key, self.federation)
            if isinstance(read, AskNewest):
                continue
            if isinstance(read.order, RevokeClient):
                self.members.revoke(read.order.client_id, read.order.void_below)
            elif isinstance(read.order, RotateKey):
                self.key_sequence, self.federator_key = read.order.sequence, read.order.new_key
            elif isinstance(read.order, RotateEnrolmentKey):
                self.operator_sequence, self.operator_key = read.order.sequence, read.order.new_key

    def note_order(self, order: NewOrder) -> None:
        """Go on to the next number."""
        self.last_order, self.last_digest = order.number, order.digest

    def has_replaced(self, key: SigningKey | None) -> bool:
        """Whether the operator has given the federator a key newer than this one, or has an unknown key itself.

        A restored database names former keys, until it has its lost orders again.
        """
        operator = self.plan.enrolment_key
        if (
            operator is not None
            and self.operator_key is not None
            and not is_current_or_former_key(operator, self.operator_key)
        ):
            return True
        if self.federator_key is None or key is None or self.key_sequence < self.plan.key_sequence:
            return False
        return self.federator_key != key.public

    # --- erasures -----------------------------------------------------------------------------------------

    def note_erasure(self, client_id: str, *, was_known: bool) -> None:
        """Apply an erasure's outcome: with it the name is retired.

        Args:
            was_known: whether anything was stored of the client. A stranger without stored data stays a stranger.
        """
        if was_known:
            self.members.forget(client_id)


class KeyReplacedError(SettingsError):
    """A federator's key, or its key of the operator, is out of date."""

    def __init__(self, federation: str) -> None:
        super().__init__(
            f"credentials: the operator has replaced the key of the federator of {federation!r}, or its own, and "
            "devices trust no other. Start it with the newest federator.json of the operator's folder"
        )
