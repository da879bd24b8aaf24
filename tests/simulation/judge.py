"""What must be true, whatever happens: looked at with every commit, every receipt and every step."""

from dataclasses import dataclass

import numpy as np
from simulation.database import Tables
from simulation.judge_clicks import ClickJudge
from simulation.judge_erasure import ErasureJudge
from simulation.process import FederatorProcess
from simulation.promises import BrokenPromiseError

from foltr.core.aggregation.mean import RunningMean, staleness_weight
from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement
from foltr.core.protocol.client_selection import is_selected
from foltr.core.protocol.fields import pack_vector, payload_digest, unpack_vector
from foltr.core.protocol.receipts import DeviceReaction, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.states import RoundState
from foltr.storage.records import RoundRow, UpdateRow

_COUNTS = (ReceiptCode.ACCEPTED, ReceiptCode.DUPLICATE)


@dataclass(frozen=True)
class Arrival:
    """When an update came to a process, as the open round stood then. Wall-clock seconds."""

    process: FederatorProcess
    at: float
    due_at: float  # the round could end from here on, with a quorum
    closes_at: float


class Judge:
    """Remembers what was made, stored and told, and raises `BrokenPromiseError`."""

    def __init__(self, erasures: ErasureJudge) -> None:
        self.erasures = erasures
        self.clicks = ClickJudge()
        self.withdrawn: set[str] = set()
        self.quarantined: set[str] = set()  # whoever was so once
        self.told_settled: set[str] = set()
        self.revoked: set[str] = set()  # as the database has it
        self.enrolled_anew: set[str] = set()  # whoever was so once
        self.n_counted: dict[str, int] = {}
        self.n_models = 0
        self._digests: dict[bytes, str] = {}
        self._payloads: dict[bytes, str] = {}
        # Of an update at the newest process, while its round was open, without those of whom it did not know yet.
        self._arrivals: dict[str, list[Arrival]] = {}
        self._given_other_deadlines: set[int] = set()
        self._put_off: set[str] = set()  # updates that came while their round had another one of their client
        # Whose clock was behind what federators had told before the database was restored.
        self.behind: set[FederatorProcess] = set()
        self._said: dict[FederatorProcess, int] = {}  # the highest sequence number of each
        self._tables = Tables()
        self._overdue: tuple[FederatorProcess, RoundRow, float] | None = None

    def payloads_of(self, client_id: str) -> list[bytes]:
        """Return every update that a device made, as it was sent first."""
        return [payload for payload, update_id in self._payloads.items() if self._maker(update_id) == client_id]

    def _maker(self, update_id: str) -> str:
        return self.clicks.made[update_id][0].client_id

    def restore(self, tables: Tables) -> None:
        """What is stored is what was stored once; what was told since was true then."""
        self.clicks.on_commit(self._tables, tables)
        self._tables = tables
        self.withdrawn |= self.clicks.made.keys()
        self.erasures.restore(tables)

    def on_sent(self, payload: bytes, update_id: str) -> None:
        self._digests[payload_digest(payload)] = update_id
        self._payloads[payload] = update_id

    def on_commit(self, before: Tables, after: Tables) -> None:
        self._tables = after
        self.erasures.on_commit(before, after)
        self.clicks.on_commit(before, after)
        self.revoked = {row.client_id for row in after.clients.values() if row.revoked_at is not None}
        for key in before.updates.keys() - after.updates.keys():
            self._withdrawn(before.updates[key], before, after)
        for key in after.updates.keys() - before.updates.keys():
            self._stored(after.updates[key], after)
        collecting = [row for row in after.open_rounds() if row.state == "collecting"]
        for row in collecting:
            known = before.rounds.get(row.number)
            if known is not None and known.closes_at != row.closes_at:
                self._given_other_deadlines.add(row.number)
            if held := [item.client_id for item in after.of_round(row.number) if item.client_id in self.revoked]:
                raise BrokenPromiseError("revoked means out of the open round", f"round {row.number} holds {held}")
        if len(after.rounds) != max(after.rounds, default=0):
            raise BrokenPromiseError("rounds are numbered without gaps", f"{sorted(after.rounds)}")
        for version in after.models.keys() - before.models.keys() - {0}:
            if after.models[version].round is not None:
                self._check_model(after, version)

    def _withdrawn(self, row: UpdateRow, before: Tables, after: Tables) -> None:
        # A client that is enrolled anew in the same batch is not revoked any more when the batch ends; and whoever asks
        # to be forgotten is taken out of the open round first.
        is_excluded = row.client_id in self.erasures.asked or row.client_id in self.quarantined
        if not is_excluded and self._is_nobody_revoked(before, after):
            raise BrokenPromiseError(
                "only a revocation, a quarantine or an erasure withdraws", f"{row.update_id} of {row.client_id} is gone"
            )
        self.withdrawn.add(row.update_id)

    @staticmethod
    def _is_nobody_revoked(before: Tables, after: Tables) -> bool:
        """Whether no roster was adopted and no order to revoke obeyed."""
        if before.federation is None or after.federation is None:
            return True
        ordered = any(after.orders[number].kind == "revoke_client" for number in after.orders.keys() - before.orders)
        return before.federation.roster == after.federation.roster and not ordered

    def _stored(self, row: UpdateRow, tables: Tables) -> None:
        update, round_ = self.clicks.made[row.update_id][0], tables.rounds[row.round]
        label = f"{row.update_id[:8]} of {row.client_id} in round {row.round}"
        self.n_counted[row.client_id] = self.n_counted.get(row.client_id, 0) + 1
        if (update.client_id, update.base_version) != (row.client_id, row.base_version):
            raise BrokenPromiseError("stored as sent", label)
        if round_.pacing == "deadline":
            if (update.round, row.base_version) != (row.round, round_.base_version):
                raise BrokenPromiseError("an update counts in its round, on its base", label)
        elif not (update.round <= row.round and 0 <= round_.base_version - row.base_version <= round_.staleness_limit):
            raise BrokenPromiseError("staleness is limited", f"{label}: {row.base_version} in {round_.base_version}")
        if tables.clients[row.client_id].revoked_at is not None:
            raise BrokenPromiseError("revoked means not counted", label)
        if (
            round_.selection_seed is not None
            and round_.selection_cutoff is not None
            and not is_selected(round_.selection_seed, round_.selection_cutoff, row.client_id)
        ):
            raise BrokenPromiseError("only who was asked counts", label)

    def _check_model(self, tables: Tables, version: int) -> None:
        """Base plus the mean of exactly the round's rows, each of which says by its power of two whose it is."""
        self.n_models += 1
        model = tables.models[version]
        round_ = tables.rounds[model.round or 0]
        rows = tables.of_round(round_.number)
        base = unpack_vector(tables.models[round_.base_version].weights)
        mean, exact, n_learned = RunningMean(1), 0.0, 0
        for row in rows:
            weight = staleness_weight(round_.base_version - row.base_version, round_.staleness_exponent)
            mean.add(unpack_vector(row.body), row.n_interactions, weight)
            exact += row.n_interactions**2 * 2.0 ** int(row.client_id.removeprefix("device-")) * weight
            n_learned += row.n_interactions
        change = float(unpack_vector(model.weights)[0]) - float(base[0])
        if version != len(tables.models) - 1 or round_.base_version != version - 1:
            raise BrokenPromiseError("models follow one another", f"{version} on {round_.base_version}")
        if not round_.min_clients <= len(rows) <= round_.max_clients:
            raise BrokenPromiseError("a model has a quorum", f"{len(rows)} updates in round {round_.number}")
        if model.weights != pack_vector(mean.apply_to(base)) or not np.isclose(change * n_learned, exact, atol=0.01):
            raise BrokenPromiseError("a model is the mean of its round", f"model {version} of round {round_.number}")

    def on_taken(self, process: FederatorProcess, payload: bytes) -> None:
        update_id = self._digests.get(payload_digest(payload))
        current = process.actor.state.round
        if update_id is None or current is None or current.state is not RoundState.COLLECTING:
            return
        if self.clicks.made[update_id][0].round != current.number:
            return
        due_at = min(current.opened_at + current.policy.min_time_s, current.closes_at)
        arrival = Arrival(process, process.now(), due_at, current.closes_at)
        self._arrivals[update_id] = [*self._arrivals_at(process, update_id), arrival]

    def _arrivals_at(self, process: FederatorProcess, update_id: str) -> list[Arrival]:
        return [arrival for arrival in self._arrivals.get(update_id, ()) if arrival.process is process]

    def on_receipt(self, receipt: UpdateReceipt | MembershipReceipt) -> None:
        self.erasures.on_receipt(receipt)
        if isinstance(receipt, MembershipReceipt):
            known = self._tables.clients.keys() | self.erasures.erased()
            if receipt.code is ReceiptCode.JOINED and receipt.client_id not in known:
                raise BrokenPromiseError("told means stored", f"{receipt.client_id} joined")
            return
        update_id = receipt.update_id or self._digests.get(receipt.payload_digest or b"")
        if update_id is None:
            return
        update = self.clicks.made[update_id][0]
        row = self._tables.stored(update.client_id, update_id)
        label = f"{update_id[:8]} of {update.client_id} for round {update.round}: {receipt.code} ({receipt.detail})"
        if receipt.code in _COUNTS:
            if (row is None or row.covers_after is None) and update_id not in self.withdrawn:
                raise BrokenPromiseError("accepted means stored", label)
        elif receipt.code.reaction is DeviceReaction.SETTLE and receipt.update_id is not None:
            self.told_settled.add(update_id)

    def on_said(self, process: FederatorProcess, sequence: int) -> None:
        """Devices believe nothing older than what they heard: whoever has taken over must be newer than all before."""
        self._said[process] = sequence
        federation = self._tables.federation
        if process in self.behind or federation is None or federation.writer_epoch != process.actor.epoch:
            return
        others = max((said for other, said in self._said.items() if other is not process), default=0)
        if sequence <= others:
            raise BrokenPromiseError("a new federator is believed", f"it says {sequence} after {others}")

    def on_mark(self, process: FederatorProcess, receipt: UpdateReceipt | MembershipReceipt) -> None:
        """No device is told that more counts than does; a federator that is fenced may be behind."""
        client = self._tables.clients.get(receipt.client_id)
        federation = self._tables.federation
        if client is None or federation is None or federation.writer_epoch != process.actor.epoch:
            return
        told = receipt.counted_through
        if told is not None and told > client.counted_through:
            raise BrokenPromiseError(
                "the watermark is told as stored", f"{receipt.client_id}: {told}, not {client.counted_through}"
            )

    def on_answer(self, process: FederatorProcess, update_id: str, receipt: UpdateReceipt) -> None:
        """See what became of one arrival of an update."""
        match receipt.code:
            case ReceiptCode.BUSY:
                self._on_busy(update_id)
            case ReceiptCode.UNKNOWN_CLIENT:
                self._on_unknown(process, update_id)
            case ReceiptCode.LATE:
                self._on_late(process, update_id, receipt.detail)

    def on_bad_signature(self, process: FederatorProcess, receipt: UpdateReceipt) -> None:
        """An update by a key of a newer enrolment than the known one has not come yet: its device is to join by that.

        No device sends it before; what the network has of it may come before.
        """
        update_id = self._digests.get(receipt.payload_digest or b"")
        if update_id is not None and receipt.client_id in self.enrolled_anew:
            self._on_unknown(process, update_id)

    def _on_busy(self, update_id: str) -> None:
        """A buffered round puts off its client's second update; where the next is no such round, it is late for that.

        Its device learns from these clicks again, so it costs a repetition, as other settings may.
        """
        update = self.clicks.made[update_id][0]
        if (update.round, update.client_id) in self._tables.updates:
            self._put_off.add(update_id)

    def _on_unknown(self, process: FederatorProcess, update_id: str) -> None:
        """Whoever is not known joins and sends it again, and by that it counts: a restored database may know nobody."""
        self._arrivals[update_id] = self._arrivals_at(process, update_id)[1:]

    def _on_late(self, process: FederatorProcess, update_id: str, detail: str) -> None:
        """``late`` for what came in time is a lie: it counts by when it arrived, not by when it was looked at."""
        number, arrivals = self.clicks.made[update_id][0].round, self._arrivals_at(process, update_id)
        if update_id in self.told_settled or update_id in self._put_off:
            return  # it was answered before
        if not arrivals or number in self._given_other_deadlines:
            return
        arrival = arrivals[0]
        row = self._tables.rounds[number]
        if row.reason == "unlearned":
            return  # a swap ended it, whenever that was
        if "is full" in detail and self._n_clients_of(number) > row.max_clients:
            return  # since then a client of it may have been revoked, in the same batch
        # Since then updates of it may have been erased.
        n_taken = row.n_updates or len(self._tables.of_round(number))
        ended_early = n_taken >= row.min_clients
        if n_taken < row.max_clients and arrival.at < (arrival.due_at if ended_early else arrival.closes_at):
            raise BrokenPromiseError(
                "in time is not late", f"{self.clicks.made[update_id][0].client_id} in round {number}: {detail}"
            )

    def _n_clients_of(self, number: int) -> int:
        """How many clients have sent to a round, or are in it."""
        sent = [self.clicks.made[update_id][0] for update_id in self._arrivals]
        of_round = {update.client_id for update in sent if update.round == number}
        return len(of_round.union(row.client_id for row in self._tables.of_round(number)))

    def on_announced(self, model: ModelAnnouncement, round_: RoundAnnouncement) -> None:
        stored, row = self._tables.models.get(model.version), self._tables.rounds.get(round_.round)
        if stored is None or stored.weights != model.weights or row is None:
            raise BrokenPromiseError("announced means stored", f"model {model.version}, round {round_.round}")
        if round_.base_version != row.base_version or (round_.selection is None) != (row.selection_cutoff is None):
            raise BrokenPromiseError("announced as stored", f"round {round_.round}")

    def check_deadline(self, process: FederatorProcess, slack_s: float, grace_s: float) -> None:
        """No round stays open past its deadline while a federator is there to end it."""
        row = next(iter(self._tables.open_rounds()), None)
        if row is None or row.state != "collecting" or not process.serving:
            self._overdue = None
            return
        closes = max(row.closes_at.timestamp(), process.started_at + grace_s)
        latest = min(closes, max(row.opened_at.timestamp(), process.started_at) + max(row.max_time_s, grace_s))
        if process.now() < latest:
            self._overdue = None
        elif self._overdue is None or self._overdue[:2] != (process, row):
            # From here on: the deadline may have been set into the past.
            self._overdue = (process, row, process.now())
        elif process.now() > self._overdue[2] + slack_s:
            raise BrokenPromiseError(
                "a round ends at its deadline", f"round {row.number}, {process.now() - latest:.1f} s ago"
            )

    def is_counted(self, update_id: str) -> bool:
        row = self._tables.stored(self.clicks.made[update_id][0].client_id, update_id)
        return row is not None and row.covers_after is not None
