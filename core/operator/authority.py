"""The operator's folder: the enrolment key, and the devices that were enrolled and revoked with it.

    enrolment.key        the private enrolment key; its holder can enrol and revoke devices
    enrolment.pub        its public half
    register.json        what was signed: enrolments, revocations, the next serial, the roster's version
    orders/              the log of orders, and the federator's answers (`foltr.core.operator.order_log`)
    policies/            the policies of secure sums, by version (`foltr.core.operator.documents`)
    schemas/             the feature schemas, likewise
    tokens/              one-time tokens, and the outcome of each (`foltr.core.operator.token_log`)
    authorities/         the lists of certificate authorities, likewise
    roster.bin           the signed roster in its published form
    federator-key.bin    the signed statement that the federator has another key, once it was rotated
    federator.json       the federator's credentials; may be moved to the machine it runs on
    operator.json        the operator's credentials: access to the broker, and a key that enrols nobody

The register is written before anything signed leaves this module, so that no serial and no roster version is used
twice, even if a command is interrupted. Orders are written before everything else: opening the folder applies those
that the register has not seen. Every use of the folder holds its lock: two operators take turns.
"""

import base64
import time
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from foltr.core.errors import MessageError, SettingsError
from foltr.core.operator.credentials import (
    BrokerAccess,
    Credentials,
    Role,
    key_of_device,
    read_credentials,
    remove_unfinished,
    write_secret,
)
from foltr.core.operator.documents import (
    DocumentLog,
    policies_in_force,
    write_authorities,
    write_policy,
    write_schema,
)
from foltr.core.operator.enrolment_rotation import n_successions, succession_messages
from foltr.core.operator.next_commands import command_in
from foltr.core.operator.order_log import OrderLog
from foltr.core.operator.register import EnrolledDevice, Register, read_enrolment_key, with_enrolment, write_register
from foltr.core.operator.roster_messages import roster_messages
from foltr.core.operator.service_files import (
    adopt_federator_key,
    prepare_federator,
    refresh_access,
    update_service_policies,
)
from foltr.core.operator.token_log import TokenLog
from foltr.core.protocol.enrolment import issue_roster, read_federator_key
from foltr.core.protocol.orders import (
    AllowReset,
    DismissProposals,
    ForgetClient,
    LiftQuarantine,
    Order,
    OrderAnswer,
    OrderReply,
    QuarantineClient,
    RevokeClient,
    RotateKey,
    SetDeadline,
)
from foltr.core.protocol.policies import Policy
from foltr.core.protocol.roster import FederatorKey
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.signed_documents import SignedDocument, read_authorities, read_schema
from foltr.core.protocol.signed_orders import SignedOrder, issue_question
from foltr.core.protocol.signed_policies import SignedPolicy, read_policy
from foltr.core.protocol.signing import SigningKey, key_to_text
from foltr.core.protocol.states import Privacy
from foltr.core.protocol.topics import Topics, check_name
from foltr.core.user_files import FileKind, read_file


class Authority:
    """An operator's folder while its lock is held; made by `foltr.core.operator.folder`."""

    def __init__(self, folder: Path, register: Register) -> None:
        self.folder = folder
        self._register = register
        self._key = read_enrolment_key(folder)
        self._operator = read_credentials(folder / "operator.json", "operator")
        if self._operator.enrolment_public_key != self._key.public:
            raise SettingsError(f"{folder}: enrolment.key and operator.json are not of one operator; restore a backup")
        keys = self._operator.operator_keys.stored()
        self.orders = OrderLog(folder / "orders", register.federation, self._key, keys)
        of_operator = keys, register.federation
        self.policies = DocumentLog(folder / "policies", "policy", lambda payload: read_policy(payload, *of_operator))
        self.schemas = DocumentLog(folder / "schemas", "schema", lambda payload: read_schema(payload, *of_operator))
        self.tokens = TokenLog(folder / "tokens", register.federation, self._key)
        self.authorities = DocumentLog(
            folder / "authorities", "authorities", lambda payload: read_authorities(payload, *of_operator)
        )
        self._catch_up()
        self._operator = update_service_policies(folder, self._operator, self.policies.newest())

    @property
    def federation(self) -> str:
        return self._register.federation

    @property
    def register(self) -> Register:
        return self._register

    @property
    def operator(self) -> Credentials:
        """Return the operator's access to the broker."""
        return self._operator

    def enrol(self, client_id: str, broker: BrokerAccess, *, replace: bool = False) -> Credentials:
        """Enrol one client; see `enrol_all`."""
        return self.enrol_all({client_id: broker}, replace=replace)[0]

    def enrol_all(
        self, access: Mapping[str, BrokerAccess], *, replace: bool = False, kept: Mapping[str, bytes] | None = None
    ) -> list[Credentials]:
        """Enrol clients, each with a fresh key, all or none of them.

        Args:
            access: how each client reaches the broker.
            kept: the public keys of clients that made theirs themselves, and keep it.
            replace: also enrol clients that were enrolled before. Their earlier serials are then in the roster; even
                without the roster the first join with the new key voids the old one.

        Raises:
            SettingsError: a name is invalid, or a client was enrolled before and ``replace`` is not given.
        """
        self._register.check_enrollable(access, replace=replace)
        now, secure = time.time(), self._register.privacy is Privacy.SECURE
        enrolled, revoked = dict(self._register.enrolled), dict(self._register.revoked)
        credentials = []
        for serial, (client_id, broker) in enumerate(access.items(), start=self._register.next_serial):
            public_key, private_key = key_of_device((kept or {}).get(client_id))
            if client_id in enrolled:
                revoked[client_id] = enrolled[client_id].serial + 1
            enrolled[client_id] = EnrolledDevice(
                serial=serial, public_key=key_to_text(public_key), issued_at=now, secure=secure
            )
            mine = self._credentials_of("device", client_id, broker, private_key)
            credentials.append(with_enrolment(mine, self._key, enrolled[client_id]))
        next_serial = self._register.next_serial + len(access)
        if revoked == self._register.revoked:
            self._store(next_serial=next_serial, enrolled=enrolled)
        else:
            self._change(next_serial=next_serial, enrolled=enrolled, revoked=revoked)
        return credentials

    def reissue_credentials(self, client_id: str, broker: BrokerAccess) -> Credentials:
        """The credentials of a client that is enrolled and keeps its key; the enrolment is the same to the byte."""
        mine = self._credentials_of("device", client_id, broker, None)
        return with_enrolment(mine, self._key, self._register.enrolled[client_id])

    def raise_serial(self, next_serial: int) -> None:
        """Assign no serial below this one: this folder is a copy from before these were assigned."""
        self._store(next_serial=max(next_serial, self._register.next_serial))

    def enrol_helper(self, name: str, broker: BrokerAccess, *, replace: bool = False) -> Credentials:
        """Register a helper, with a fresh key that signs its answers; policies name it from then on.

        Raises:
            SettingsError: the name is invalid, or such a helper is known and ``replace`` is not given.
        """
        self._register.check_helper(name, replace=replace)
        key = SigningKey.generate()
        self._store(helpers={**self._register.helpers, name: key_to_text(key.public)})
        return self._credentials_of("helper", name, broker, key.to_text())

    def _credentials_of(self, role: Role, name: str, broker: BrokerAccess, private_key: str | None) -> Credentials:
        """Their trusted keys and their policy are those of the operator's credentials."""
        mine = {"role": role, "name": name, "broker": broker, "signing_key": private_key, "privacy": None}
        return self._operator.model_copy(update={**mine, "federator_sealing_key": None})

    # --- orders ---------------------------------------------------------------------------------------------

    def revoke(self, client_id: str) -> SignedOrder | None:
        """Order every enrolment of a client to be void; None if that was ordered before. The roster lists it too.

        Raises:
            SettingsError: no such client was enrolled here.
        """
        device = self._register.enrolled.get(client_id)
        if device is None:
            if client_id in self._register.revoked:
                return None
            roster = command_in(self.folder, "foltr operator roster")
            raise SettingsError(f"client: {client_id!r:.70} is not enrolled in {self.folder}; see: {roster}")
        order = RevokeClient(federation=self.federation, client_id=client_id, void_below=device.serial + 1)
        return self._order(order)

    def deadline(self, round_number: int, max_time_s: float) -> SignedOrder:
        """Order a round to last ``max_time_s`` seconds from its opening."""
        return self._order(SetDeadline(federation=self.federation, round=round_number, max_time_s=max_time_s))

    def quarantine(self, client_id: str, reason: str) -> SignedOrder:
        """Order that a client's updates are not accepted.

        Raises:
            SettingsError: the reason is missing, too long, not printable, or names a client.
        """
        check_name("client", client_id)
        self._register.refuse_names(reason, client_id)
        try:
            order = QuarantineClient(federation=self.federation, client_id=client_id, reason=reason)
        except ValidationError as error:
            raise SettingsError("reason: say why, in a line of 1 to 500 printable characters") from error
        return self._order(order)

    def lift_quarantine(self, client_id: str) -> SignedOrder:
        """Order that a client's updates are accepted again."""
        check_name("client", client_id)
        return self._order(LiftQuarantine(federation=self.federation, client_id=client_id))

    def dismiss(self, client_id: str) -> SignedOrder:
        """Order that proposals to quarantine a client are dismissed."""
        check_name("client", client_id)
        return self._order(DismissProposals(federation=self.federation, client_id=client_id))

    def allow_reset(self, job: int) -> SignedOrder:
        """Order that an unlearning job may put the first model in service."""
        return self._order(AllowReset(federation=self.federation, job=job))

    def forget(self, client_id: str) -> SignedOrder:
        """Order that a client is forgotten: the holder of the name until now, but nobody who is enrolled later.

        Returns the same order again if it exists and has no answer here yet: it may have been carried to the federator
        by hand, and an operator who asks twice wants one client forgotten, not two orders.
        """
        check_name("client", client_id)
        device = self._register.enrolled.get(client_id)
        serial = self._register.next_serial - 1 if device is None else device.serial
        order = ForgetClient(federation=self.federation, client_id=client_id, serial=serial)
        standing = (signed for signed in self.orders.unanswered() if signed.order == order)
        return next(standing, None) or self._order(order)

    def rotate_federator_key(self, access: BrokerAccess) -> SignedOrder:
        """Give the federator another key; ``federator.json`` has its new credentials when this returns.

        Args:
            access: how the federator reaches the broker, if its credentials were moved away.
        """
        # Before the order: a lost key would leave devices that trust no federator.
        in_force = policies_in_force(self.policies, self._register.published_policy)
        credentials = prepare_federator(self.folder, self._operator, access, in_force)
        return self._order(
            RotateKey(
                federation=self.federation,
                sequence=credentials.federator_key_sequence,
                old_key=self._operator.federator_public_key,
                new_key=credentials.federator_public_key,
            )
        )

    def record_answer(self, signed: SignedOrder, answer: OrderAnswer, payload: bytes) -> None:
        """Store the federator's answer to an order; once a client is forgotten, delete its name in this folder."""
        if isinstance(signed.order, ForgetClient) and answer.reply is OrderReply.OBEYED:
            self._forget(signed.order.client_id)
        self.orders.record_answer(signed.number, payload)

    def renumber_above(self, first: int, answer: OrderAnswer) -> dict[int, int]:
        """Renumber the unanswered orders from ``first`` on above what the federator has seen: this folder was restored.

        Returns:
            the new number of each renumbered order.
        """
        register = self._register
        if register.next_serial <= answer.newest_serial:
            self.tokens.revoke(self.tokens.records())
        if register.roster_version <= answer.roster_version or register.next_serial <= answer.newest_serial:
            self._change(above=answer.roster_version, next_serial=max(register.next_serial, answer.newest_serial + 1))
        return self.orders.renumber(first, answer.newest)

    def question(self, challenge: bytes) -> bytes:
        """The signed question for the newest order that the federator knows."""
        return issue_question(self._key, self.federation, challenge)

    def accept_statement(self, payload: bytes) -> bool:
        """Trust the federator's key in a statement that this folder signed before it was restored from a backup.

        Returns:
            whether it is new.
        """
        try:
            statement = read_federator_key(payload, self._operator.operator_keys, self.federation)
        except MessageError:
            return False  # somebody else wrote it
        if statement.sequence <= self._operator.federator_key_sequence:
            return False
        self._take_key(statement)
        return True

    @property
    def federator_keys(self) -> tuple[bytes, ...]:
        """The trusted keys of answers: the federator's, and the former one until the federator knows the new one."""
        rotations = [signed.order for signed in self.orders.unanswered() if isinstance(signed.order, RotateKey)]
        return (self._operator.federator_public_key, *(rotation.old_key for rotation in rotations))

    def _order(self, order: Order) -> SignedOrder:
        signed = self.orders.write(order)
        self._catch_up()
        return signed

    def _catch_up(self) -> None:
        """Apply, in this folder, the orders that the register has not seen."""
        revoked, enrolled = dict(self._register.revoked), dict(self._register.enrolled)
        for signed in self.orders.after(self._register.through):
            match signed.order:
                case RevokeClient(client_id=client_id, void_below=void_below):
                    revoked[client_id] = max(void_below, revoked.get(client_id, 0))
                    if client_id in enrolled and enrolled[client_id].serial < void_below:
                        del enrolled[client_id]
                case RotateKey() as rotation:
                    self._take_key(FederatorKey.model_validate(rotation.model_dump()))
        if revoked != self._register.revoked or enrolled != self._register.enrolled:
            self._change(revoked=revoked, enrolled=enrolled, through=self.orders.newest)
        elif self._register.through < self.orders.newest:
            self._store(through=self.orders.newest)

    def _take_key(self, statement: FederatorKey) -> None:
        """Trust the federator's new key, and replace its credentials."""
        if statement.sequence <= self._operator.federator_key_sequence:
            return
        self._operator = adopt_federator_key(self.folder, self._operator, statement, self._key)

    def _forget(self, client_id: str) -> None:
        """Replace a name by a tombstone, in the register, in the roster and in the log."""
        register, tombstone = self._register, self._register.tombstone(client_id)
        self.tokens.forget(client_id)
        remove_unfinished(self.folder)  # one may hold the name
        if tombstone not in register.forgotten:
            self._change(
                enrolled={name: device for name, device in register.enrolled.items() if name != client_id},
                revoked={name: serial for name, serial in register.revoked.items() if name != client_id},
                forgotten=sorted((*register.forgotten, tombstone)),
            )
        self.orders.redact_client(client_id, base64.b64decode(register.salt), bytes.fromhex(tombstone))

    # --- policies and schemas -------------------------------------------------------------------------------

    def issue_policy(self, policy: Policy) -> SignedPolicy:
        """Sign a policy: credentials carry it from now on, and the broker retains it once it is published.

        Raises:
            SettingsError: see `foltr.core.operator.documents.write_policy`.
        """
        signed = write_policy(self.policies, self._key, policy)
        self._operator = update_service_policies(self.folder, self._operator, signed)
        return signed

    def publish_policy(self) -> None:
        """Have the newest policy retained at the broker from now on, with everything else in `unpublished`."""
        self._store(policy_to_publish=self.policies.newest_version, published_policy=0)

    def issue_schema(self, schema: FeatureSchema) -> SignedDocument[FeatureSchema]:
        """Sign a schema, and have it retained at the broker from now on, with everything else in `unpublished`.

        Raises:
            SettingsError: see `foltr.core.operator.documents.write_schema`.
        """
        signed = write_schema(self.schemas, self._key, schema, self.federation)
        self._store(schema_to_publish=signed.version, published_schema=0)
        return signed

    def issue_authorities(self, certificates: list[str]) -> None:
        """Sign the authorities that vouch for the broker, PEM text; retained with everything else in `unpublished`."""
        write_authorities(self.authorities, self._key, self.federation, certificates)

    # --- what is published ----------------------------------------------------------------------------------

    def roster(self) -> bytes:
        """The signed roster; also in ``roster.bin``."""
        payload = issue_roster(self._key, self._register.roster())
        path = self.folder / "roster.bin"
        if not path.exists() or read_file(path, FileKind.MESSAGE) != payload:
            write_secret(path, payload, replace=True)
        return payload

    def unpublished(self) -> list[tuple[str, bytes]]:
        """What the broker should retain and does not yet, as (topic, payload)."""
        register, messages = self._register, []
        if register.published_succession != n_successions(self.folder):
            messages += succession_messages(self.folder, self.federation)
        if register.published_roster != register.roster_version:
            messages += self.roster_messages()
        statement = self.folder / "federator-key.bin"
        if register.published_key != self._operator.federator_key_sequence and statement.exists():
            messages.append((Topics(self.federation).federator_key, read_file(statement, FileKind.MESSAGE)))
        if register.published_policy != register.policy_to_publish:
            messages.append((Topics(self.federation).policy, self.policies.get(register.policy_to_publish).signed))
        if register.published_schema != register.schema_to_publish:
            messages.append((Topics(self.federation).schema, self.schemas.get(register.schema_to_publish).signed))
        if register.published_authorities != self.authorities.newest_version:
            newest = self.authorities.get(self.authorities.newest_version)
            messages.append((Topics(self.federation).authorities, newest.signed))
        return messages

    def note_published(self) -> None:
        """Note that the broker retains the `unpublished` messages."""
        register = self._register
        published = {
            "published_roster": register.roster_version,
            "published_key": self._operator.federator_key_sequence,
            "published_policy": register.policy_to_publish,
            "published_schema": register.schema_to_publish,
            "published_authorities": self.authorities.newest_version,
            "published_succession": n_successions(self.folder),
        }
        if published != {name: getattr(register, name) for name in published}:
            self._store(**published)

    def publish_again(self) -> None:
        """Publish everything at the next occasion: the broker may have lost it."""
        kinds = ("roster", "key", "policy", "schema", "authorities", "succession")
        self._store(**{f"published_{kind}": 0 for kind in kinds})

    def roster_messages(self) -> list[tuple[str, bytes]]:
        """The retained messages of the roster, see `foltr.core.operator.roster_messages`."""
        register, payload = self._register, self.roster()
        messages, n_chunks = roster_messages(
            self._key, self.federation, payload, register.roster_version, register.n_roster_chunks
        )
        if n_chunks > register.n_roster_chunks:
            self._store(n_roster_chunks=n_chunks)
        return messages

    def refresh_access(self, *, federator: BrokerAccess, operator: BrokerAccess) -> list[Path]:
        """Replace the services' access to the broker; return the files that changed."""
        self._operator, changed = refresh_access(self.folder, self._operator, federator=federator, operator=operator)
        return changed

    def _change(self, *, above: int = 0, **fields: object) -> None:
        """Store a changed register under the next roster version, and one higher than ``above``; then the roster."""
        version = max(self._register.roster_version, above) + 1
        self._store(**fields, roster_version=version, roster_through=self.orders.newest)
        self.roster()

    def _store(self, **fields: object) -> None:
        register = self._register.model_copy(update=fields)
        write_register(self.folder, register)
        self._register = register

    def __repr__(self) -> str:
        return f"Authority({str(self.folder)!r}, federation={self.federation!r})"
