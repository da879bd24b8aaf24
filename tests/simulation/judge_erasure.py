"""What must be true of those who are forgotten, whatever happens; and of the models that they taught."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from simulation.database import Tables
from simulation.promises import BrokenPromiseError

from foltr.core.erasure.audit import check_follows
from foltr.core.errors import DataError
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.receipts import ErasureNotice, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.states import Membership
from foltr.storage.erasure_records import UnlearningJobRow
from foltr.storage.records import ModelRow

_FOLLOWING = {
    "erased": {"waiting", "done"},
    "waiting": {"unlearning"},
    "unlearning": {"waiting", "done"},
    "done": set[str](),
}


@dataclass(frozen=True)
class _Known:
    """What was known of what is stored, when it was stored."""

    tables: Tables
    names: dict[str, str]
    taught: dict[int, frozenset[str]]
    taught_in_job: dict[int, frozenset[str]]


class ErasureJudge:
    """Remembers who asked and whose updates are in which model, and raises `BrokenPromiseError`.

    Attributes:
        asked: who is to be forgotten, by its own wish or the operator's.
        names: whose erasure is stored, by pseudonym: the database forgets the names.
        n_swaps: models that took the place of others.
        again: who is to be forgotten again, as a copy of before was restored.
    """

    def __init__(self, has_key: Callable[[str], bool]) -> None:
        self._has_key = has_key
        self.asked: set[str] = set()
        self.names: dict[str, str] = {}
        self.n_swaps = 0
        self.again: set[str] = set()
        self._tables = Tables()
        self._known_at: dict[int, _Known] = {}  # with each commit, by the identity of what it left
        # Clients whose updates are in a model, and in the model of an open job.
        self._taught: dict[int, frozenset[str]] = {0: frozenset()}
        self._taught_in_job: dict[int, frozenset[str]] = {}

    def restore(self, tables: Tables) -> None:
        """What is stored is what was stored once; who was forgotten since is there again, and to be forgotten again."""
        ever = {name for known in self._known_at.values() for name in known.names.values()}
        self._tables = tables
        if (known := self._known_at.get(id(tables))) is not None:
            self.names, self._taught, self._taught_in_job = known.names, known.taught, known.taught_in_job
        self.again = (ever - self.erased()) & tables.clients.keys()

    def erased(self) -> set[str]:
        return set(self.names.values())

    def pseudonym(self, client_id: str) -> str | None:
        return next((pseudonym for pseudonym, name in self.names.items() if name == client_id), None)

    def to_forget_again(self) -> list[str]:
        return sorted(self.again - self.erased())

    def on_commit(self, before: Tables, after: Tables) -> None:
        self._see(before, after)
        self._known_at[id(after)] = _Known(after, self.names, self._taught, self._taught_in_job)

    def _see(self, before: Tables, after: Tables) -> None:
        self._tables = after
        for version in after.models.keys() - before.models.keys() - {0}:
            model = after.models[version]
            if model.round is not None:
                contributed = (row.client_id for row in after.of_round(model.round))
                self._taught = self._taught | {version: self._taught[model.base_version or 0].union(contributed)}
            else:
                self._see_swap(model, before, after)
        if not after.erasures:
            return
        for pseudonym in after.erasures.keys() - before.erasures.keys():
            name = after.erasures[pseudonym].client_id or ""
            self.names = self.names | {pseudonym: name}
            if name not in self.asked:
                raise BrokenPromiseError("nobody is forgotten who did not ask", name)
        self._check_rows(before, after)
        for job in after.jobs.values():
            known = before.jobs.get(job.number)
            if known is None:
                self._see_start(job, after)
            elif job.step != known.step:
                self._see_step(known, job, before)
        if before.erasures != after.erasures:
            self._check_states(before, after)
        if before.erasures != after.erasures or before.models.keys() != after.models.keys():
            self._check_models(after)
        self._check_audit(before, after)

    def _check_rows(self, before: Tables, after: Tables) -> None:
        """No row of a forgotten client, and none that names it, from the erasing transaction on."""
        erased = self.erased()
        is_new = before.erasures.keys() != after.erasures.keys()
        held: dict[str, Iterable[str]] = {
            "clients": after.clients,
            "updates": {client_id for _, client_id in after.updates},
            "identities": {client_id for client_id, _ in after.identities},
        }
        for table, names in held.items():
            if left := erased.intersection(names):
                raise BrokenPromiseError("no row of a forgotten client is left", f"{table} has {sorted(left)}")
        for event in after.events if is_new else after.events[len(before.events) :]:
            if event.client_id in erased or any(name in event.detail for name in erased):
                raise BrokenPromiseError("no row of a forgotten client is left", f"events has {event}")

    @staticmethod
    def _check_states(before: Tables, after: Tables) -> None:
        for pseudonym, row in after.erasures.items():
            known = before.erasures.get(pseudonym)
            if known is None and row.state != "erased":
                raise BrokenPromiseError("an erasure begins with what is stored", f"{pseudonym} is {row.state}")
            if known is not None and known.state != row.state and row.state not in _FOLLOWING[known.state]:
                raise BrokenPromiseError("an erasure goes on", f"{pseudonym} was {known.state} and is {row.state}")
            if known is not None and known.state == row.state == "done" and known.receipt != row.receipt:
                raise BrokenPromiseError("a receipt stays as it is", pseudonym)
        if gone := before.erasures.keys() - after.erasures.keys():
            raise BrokenPromiseError("an erasure goes on", f"{gone} is gone")

    def _check_models(self, tables: Tables) -> None:
        """What a forgotten client taught is marked, and is in no model any more once its erasure is done."""
        erased = self.erased()
        done = {self.names[pseudonym] for pseudonym, row in tables.erasures.items() if row.state == "done"}
        for version, model in tables.models.items():
            taught_by = self._taught[version]
            if model.weights and taught_by & done:
                raise BrokenPromiseError(
                    "who is forgotten is in no model", f"model {version} holds {sorted(taught_by & done)}"
                )
            if model.tainted_at is None and taught_by & erased:
                raise BrokenPromiseError(
                    "what the forgotten taught is marked", f"model {version} holds {sorted(taught_by & erased)}"
                )

    @staticmethod
    def _check_audit(before: Tables, after: Tables) -> None:
        previous = before.audit[-1] if before.audit else None
        for entry in after.audit[len(before.audit) :]:
            try:
                check_follows(previous, entry)
            except DataError as error:
                raise BrokenPromiseError("the audit log is a chain", str(error)) from error
            previous = entry

    def _see_start(self, job: UnlearningJobRow, tables: Tables) -> None:
        self._taught_in_job = self._taught_in_job | {job.number: self._taught[job.start_version]}
        if job.weights != tables.models[job.start_version].weights:
            raise BrokenPromiseError("a job starts from a model", f"job {job.number}, model {job.start_version}")
        if taught_by := self._taught[job.start_version] & self.erased():
            raise BrokenPromiseError("a job starts without the forgotten", f"model {job.start_version}: {taught_by}")

    def _see_step(self, known: UnlearningJobRow, job: UnlearningJobRow, tables: Tables) -> None:
        """A step adds the mean of answers of clients that are in the stored round; each power of two is one of them."""
        change = float(unpack_vector(job.weights or b"")[0]) - float(unpack_vector(known.weights or b"")[0])
        asked = {row.client_id for row in tables.of_round(job.last_round or 0)}
        if job.step != known.step + 1 or (job.last_round or 0) <= (known.last_round or 0):
            raise BrokenPromiseError("steps follow one another", f"{known.step}, {job.step}")
        for n in range(len(asked) + 1):
            total = round(change * n)
            who = {f"device-{i}" for i in range(total.bit_length()) if total >> i & 1}
            is_mean = total >= 0 and abs(total - change * n) <= 0.02 and len(who) == n
            if is_mean and (n or abs(change) < 1e-6) and who <= asked:
                self._taught_in_job = self._taught_in_job | {job.number: self._taught_in_job[job.number] | who}
                return
        raise BrokenPromiseError(
            "a step learns from those who stay", f"job {job.number}, round {job.last_round}: {change} of {asked}"
        )

    def _see_swap(self, model: ModelRow, before: Tables, after: Tables) -> None:
        job = before.jobs[model.unlearning_job or 0]
        self.n_swaps += 1
        self._taught = self._taught | {model.version: self._taught_in_job[job.number]}
        label = f"model {model.version} of job {job.number}"
        if model.weights != job.weights or model.version != max(before.models) + 1:
            raise BrokenPromiseError("the swap puts the last step in service", label)
        for row in after.rounds.values():
            if before.rounds.get(row.number, row).state != row.state and before.of_round(row.number):
                raise BrokenPromiseError("a swap costs no accepted update", f"{label} ended round {row.number}")
        opened = after.open_rounds()
        if any(row.base_version != model.version for row in opened):
            raise BrokenPromiseError("after a swap rounds begin with its model", f"{label}: {opened}")
        for row in before.erasures.values():
            if row.state == "unlearning" and after.erasures[row.pseudonym].state != "done":
                raise BrokenPromiseError("a swap ends the erasures it was made for", f"{label}: {row.pseudonym}")

    def on_receipt(self, receipt: UpdateReceipt | MembershipReceipt) -> None:
        """Whoever reads this deletes what it has, and its request with it: the erasure must be stored."""
        if receipt.code in (ReceiptCode.FORGETTING, ReceiptCode.FORGOTTEN) and receipt.client_id not in self.erased():
            raise BrokenPromiseError("told forgotten means erased", f"{receipt.client_id}: {receipt.kind_name}")

    def on_notice(self, notice: ErasureNotice) -> None:
        if notice.code not in (ReceiptCode.ERASING, ReceiptCode.FORGETTING, ReceiptCode.FORGOTTEN):
            return
        pseudonym = self.pseudonym(notice.client_id)
        if pseudonym is None:
            raise BrokenPromiseError("a notice follows its erasure", f"{notice.client_id}: {notice.code}")
        row = self._tables.erasures[pseudonym]
        if notice.code is ReceiptCode.ERASING:
            return
        if row.state == "erased" or (self._has_key(notice.client_id) and notice.client_id not in self.again):
            raise BrokenPromiseError("told erased means that rows and key are gone", notice.client_id)
        if notice.code is ReceiptCode.FORGETTING:
            return
        if row.state != "done":
            raise BrokenPromiseError("told forgotten means done", f"{notice.client_id} is {row.state}")
        if (notice.receipt or b"").decode() != (row.receipt or ""):
            raise BrokenPromiseError("a receipt is told as stored", notice.client_id)

    def unfinished(self) -> list[str]:
        """What of erasures is still to be done, in words; nothing where a job waits for devices, saying so."""
        clients = self._tables.clients.values()
        is_alone = not any(row.online and row.membership is Membership.JOINED for row in clients)
        paused = is_alone and any(job.state == "paused" for job in self._tables.jobs.values())
        left = [
            f"{self.names[pseudonym]} is {row.state}"
            for pseudonym, row in self._tables.erasures.items()
            if row.state != "done" and not (paused and row.state in ("waiting", "unlearning"))
        ]
        left += [f"{name} is not forgotten again" for name in self.to_forget_again()]
        keyed = [name for name in sorted(self.erased()) if self._has_key(name)]
        return [*left, *(f"{name} has a key" for name in keyed)]
