"""What a helper remembers: one function for each transaction, named for what it does and safe to repeat."""

import hmac
import sqlite3
from collections.abc import Iterable

from foltr.core.errors import DataError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.helper_messages import CheckRequest, OpenRequest
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.secure.sealing import SealingKey
from foltr.helper.checking import GoodTicket, KnownClient
from foltr.helper.opening import CommittedSet
from foltr.helper.store_file import StoreFile


class HelperStore(StoreFile):
    """The store of one helper."""

    # --- what the operator says ----------------------------------------------------------------------------

    def policies(self) -> list[bytes]:
        """Return the signed policies, the oldest first."""
        return [signed for (signed,) in self.rows("SELECT signed FROM policies ORDER BY version")]

    def keep_policy(self, policy: SignedPolicy) -> None:
        with self.transaction() as cursor:
            cursor.execute(
                "INSERT OR IGNORE INTO policies (hash, version, signed) VALUES (?, ?, ?)",
                (policy.hash, policy.policy.version, policy.signed),
            )

    # --- sealing keys --------------------------------------------------------------------------------------

    def make_sealing_keys(self, n_epochs: int) -> tuple[bytes, list[bytes]]:
        """Make keys for a future policy, its verify key first; return its public half, and those of its epochs."""
        made = [SealingKey.generate() for _ in range(1 + n_epochs)]
        with self.transaction() as cursor:
            cursor.executemany(
                "INSERT INTO sealing_keys (public, private) VALUES (?, ?)", [(key.public, key.private) for key in made]
            )
        return made[0].public, [key.public for key in made[1:]]

    def destroy_keys(self, publics: Iterable[bytes]) -> int:
        """Destroy the keys with these public halves that are still here; return how many."""
        with self.transaction() as cursor:
            n_destroyed = _delete_keys(cursor, publics)
            failpoint(Failpoint.IN_DESTRUCTION_TRANSACTION)
        failpoint(Failpoint.KEYS_DELETED)
        if n_destroyed:
            self.overwrite()
        return n_destroyed

    def sealing_key(self, public: bytes) -> SealingKey | None:
        """Return the key with this public half; None if it was destroyed or never made here."""
        found = self.rows("SELECT private FROM sealing_keys WHERE public = ?", (public,))
        return SealingKey(found[0][0]) if found else None

    # --- checking ------------------------------------------------------------------------------------------

    def newest_round(self) -> int | None:
        """Return the newest round with a set that was committed to."""
        newest: int | None = self.rows("SELECT max(round) FROM committed_sets")[0][0]
        return newest

    def committed_set(self, round_number: int, cohort: int) -> CommittedSet | None:
        found = self.rows(
            "SELECT policy_hash, digest, sum FROM committed_sets WHERE round = ? AND cohort = ?", (round_number, cohort)
        )
        return CommittedSet(*found[0]) if found else None

    def known_clients(self, request: CheckRequest, names: Iterable[str]) -> dict[str, KnownClient]:
        """Return what the store knows of the clients of a page, by name."""
        known = {}
        first, end = request.first, request.first + len(request.tickets)
        for name in set(names):
            client = self._pseudonym(name)
            spent = self.rows("SELECT participation FROM clients WHERE client = ?", (client,))
            elsewhere = self.rows(
                "SELECT hash FROM checked_tickets WHERE round = ? AND cohort = ? AND client = ? AND policy_hash = ? "
                "AND NOT (position >= ? AND position < ?)",
                (request.round, request.cohort, client, request.policy_hash, first, end),
            )
            known[name] = KnownClient(spent[0][0] if spent else 0, elsewhere[0][0] if elsewhere else None)
        return known

    def keep_page(self, request: CheckRequest, good: Iterable[GoodTicket], sealing_key: bytes) -> int:
        """Replace the good tickets of a page, and destroy older keys.

        Tickets of other rounds, policies and epochs are deleted: their sums will not be opened. A ticket on the page
            loses its old position.

        Args:
            sealing_key: the public half of the key that the policy names for its verify key.

        Returns:
            how many keys were destroyed.
        """
        rows = [
            (
                *(request.round, request.cohort, ticket.position, request.policy_hash),
                *(self._pseudonym(ticket.client_id), ticket.participation, ticket.hash, ticket.seal, ticket.info),
                request.epoch,
            )
            for ticket in good
        ]
        with self.transaction() as cursor:
            cursor.execute(
                "DELETE FROM checked_tickets WHERE round <> ? OR policy_hash <> ? OR epoch <> ?",
                (request.round, request.policy_hash, request.epoch),
            )
            cursor.execute(
                "DELETE FROM checked_tickets WHERE round = ? AND cohort = ? AND position >= ? AND position < ?",
                (request.round, request.cohort, request.first, request.first + len(request.tickets)),
            )
            # The primary key is the position, and a client has one position in a cohort, so older rows are replaced.
            cursor.executemany("INSERT OR REPLACE INTO checked_tickets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            n_destroyed = cursor.execute(
                "DELETE FROM sealing_keys WHERE id < (SELECT id FROM sealing_keys WHERE public = ?)", (sealing_key,)
            ).rowcount
            failpoint(Failpoint.IN_CHECK_TRANSACTION)
        failpoint(Failpoint.TICKETS_CHECKED)
        if n_destroyed:
            self.overwrite()
        return n_destroyed

    # --- opening -------------------------------------------------------------------------------------------

    def checked_hashes(self, request: OpenRequest) -> dict[int, bytes]:
        """Return the hashes of the good tickets of a cohort, by position."""
        return dict(
            self.rows(
                "SELECT position, hash FROM checked_tickets "
                "WHERE round = ? AND cohort = ? AND policy_hash = ? AND epoch = ?",
                (request.round, request.cohort, request.policy_hash, request.epoch),
            )
        )

    def seals(self, request: OpenRequest) -> list[tuple[bytes, bytes]]:
        """Return the seals at the positions of a request, each with what it is for."""
        found = {
            position: (seal, info)
            for position, seal, info in self.rows(
                "SELECT position, seal, info FROM checked_tickets WHERE round = ? AND cohort = ?",
                (request.round, request.cohort),
            )
        }
        return [found[position] for position in request.positions]

    def commit_to(self, request: OpenRequest, past_keys: Iterable[bytes]) -> int:
        """Store the commitment to this set of its round and cohort; delete sets of older rounds.

        Args:
            past_keys: the public halves of earlier epochs' keys, which are destroyed: nothing needs them.

        Returns:
            how many keys were destroyed.
        """
        with self.transaction() as cursor:
            cursor.execute("DELETE FROM committed_sets WHERE round < ?", (request.round,))
            cursor.execute(
                "INSERT INTO committed_sets (round, cohort, policy_hash, digest) VALUES (?, ?, ?, ?)",
                (request.round, request.cohort, request.policy_hash, request.digest),
            )
            n_destroyed = _delete_keys(cursor, past_keys)
            failpoint(Failpoint.IN_COMMITMENT_TRANSACTION)
        failpoint(Failpoint.SET_COMMITTED)
        if n_destroyed:
            self.overwrite()
        return n_destroyed

    def keep_sum(self, request: OpenRequest, values: bytes, max_participations: int) -> None:
        """Store an answer before it is sent, charge its clients, and delete the cohort's tickets.

        Args:
            max_participations: the policy's limit for a client's lifetime.

        Raises:
            DataError: a client of the set has no participation left. Nothing was changed.
        """
        about = (request.round, request.cohort)
        with self.transaction() as cursor:
            self._charge(cursor, request, max_participations)
            cursor.execute("UPDATE committed_sets SET sum = ? WHERE round = ? AND cohort = ?", (values, *about))
            cursor.execute("DELETE FROM checked_tickets WHERE round = ? AND cohort = ?", about)
            failpoint(Failpoint.IN_OPENING_TRANSACTION)
        failpoint(Failpoint.SUM_OPENED)

    def _charge(self, cursor: sqlite3.Cursor, request: OpenRequest, most: int) -> None:
        """Charge each client one participation more, or as many as its device has counted if that is more.

        The device's number covers what this helper never saw; the helper's count covers what the device has forgotten.
        """
        n_charged = cursor.executemany(
            "INSERT INTO clients (client, participation) SELECT client, participation FROM checked_tickets "
            "WHERE round = ? AND cohort = ? AND position = ? "
            "ON CONFLICT (client) DO UPDATE "
            "SET participation = max(clients.participation + 1, excluded.participation) "
            "WHERE clients.participation < ?",
            [(request.round, request.cohort, position, most) for position in request.positions],
        ).rowcount
        if n_charged != len(request.positions):
            raise DataError(
                f"helper store: of {len(request.positions)} clients of round {request.round}, cohort {request.cohort} "
                f"only {n_charged} have a participation left; the sum stays closed"
            )

    def _pseudonym(self, name: str) -> bytes:
        """Return the pseudonym of a client: 32 bytes, a keyed hash of its name."""
        return hmac.digest(self.name_key, name.encode(), "sha256")


def _delete_keys(cursor: sqlite3.Cursor, publics: Iterable[bytes]) -> int:
    return cursor.executemany("DELETE FROM sealing_keys WHERE public = ?", [(key,) for key in publics]).rowcount
