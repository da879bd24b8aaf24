"""``foltr federator``: run the federator or an ingest worker of one federation; rotate the federator's key."""

import asyncio
import contextlib
import ctypes
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog
import typer

from foltr.broker.address import BrokerAddress
from foltr.broker.shared_subscriptions import SharedSubscriptionResult, probe_shared_subscription
from foltr.cli import options
from foltr.cli.method import choose_method, choose_rule, read_initial_model, read_logging_policy, read_schema_setting
from foltr.cli.metrics_port import metrics_port
from foltr.cli.operator.identities import FederatorIdentity, choose_privacy, federator_identity
from foltr.cli.operator.sending import send_order
from foltr.cli.options import OperatorFolder
from foltr.cli.output import configure_logging, require_existing, say
from foltr.cli.progress import stop_on_signal
from foltr.cli.setting_groups import Rounds
from foltr.cli.settings import Settings, load_settings, takes_settings
from foltr.core.alive_file import AliveFile
from foltr.core.errors import FoltrError, SettingsError, UnavailableError
from foltr.core.operator.authority import Authority
from foltr.core.operator.credentials import FEDERATOR_USER, BrokerAccess, read_credentials
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.core.protocol.policies import NEW_POLICY
from foltr.core.protocol.states import Pacing
from foltr.operations.operator_access import broker_record, open_authority, service_access

if TYPE_CHECKING:
    from foltr.federator.plan import FederationPlan

# 70 times the default. Objects of this kind take some 100 bytes each.
_N_NEW_OBJECTS = 50_000
log = structlog.get_logger(__name__)

app = typer.Typer(help="Run the federator, and replace its key.", no_args_is_help=True)


# The settings with a flag. All others are set in the file or the environment.
RUN_KEYS = (
    *("broker_url", "db_url", "federation", "credentials", "allow_unsigned", "keys", "role", "standby"),
    *("n_features", "feature_schema", "interactions", "method", "privacy", "aggregation"),
    *("min_clients", "max_clients", "min_time_s", "max_time_s", "stop_after_round"),
)


_M_ARENA_MAX: Final = -8  # in glibc's malloc.h
# If the environment sets one of these, it decides.
_SAID_BY: Final = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")


log = structlog.get_logger(__name__)
_UNSIGNED: Final = "any client can take part under any name; see `foltr device enrol --help`"
# If none of so many arrives, twice, it is not chance.
_N_TRIED = 8


@app.command("run")
@takes_settings(RUN_KEYS)
def run(**flags: Any) -> None:
    """Run the federator until SIGTERM or Ctrl-C; the open round is taken up again at the next start."""
    settings = load_settings(**flags)
    configure_logging(settings.log_level, settings.log_format)
    if settings.standby and settings.role == "ingest":
        raise SettingsError("standby: it cannot be combined with role ingest; leave it out")
    share_one_heap()
    asyncio.run(serve_ingest(settings) if settings.role == "ingest" else _serve(settings))


@app.command("rotate-key")
def rotate_key(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, broker: options.Broker = None) -> None:
    """Replace the federator's key. Devices trust the new one from now on; none has to enrol again."""
    with open_authority(operator) as authority:
        order = authority.rotate_federator_key(_federators_access(authority))
        say(
            f"{operator}/federator.json has a new key: start the federator of {authority.federation} with it. A "
            "federator with the old key stops by itself"
        )
        newest = authority.policies.newest()
        if newest is not None and newest.policy.norm_proof is not None:
            federator = read_credentials(operator / "federator.json", "federator")
            say(_about_verify_key(operator, newest.version, is_kept=federator.can_check(newest.policy)))
        answer = send_order(authority, order, broker)
        say(f"Order {answer.number} is obeyed. Devices learn of it now, or when they connect next")


def _about_verify_key(operator: Path, version: int, *, is_kept: bool) -> str:
    """Say what a key rotation means for the policy's verify key, which was sealed to the former key."""
    another = command_in(operator, NEW_POLICY)
    if is_kept:
        return (
            f"The file still opens the verify key of policy {version}. So does the old file, and a device that "
            f"knows this key can lie about norms. If the old file was exposed, sign another policy: {another}"
        )
    return (
        f"The file cannot open the verify key of policy {version}: that is sealed to a key in the old file, which was "
        f"moved away. Sign another policy before the federator starts: {another}"
    )


def _federators_access(authority: "Authority") -> BrokerAccess:
    """Return how the federator reaches the broker, if its credentials were moved to its machine."""
    if broker_record(authority.folder) is not None:
        return service_access(authority.folder)[0]
    return authority.operator.broker


def make_plan(settings: Settings, identity: FederatorIdentity) -> "FederationPlan":
    """Build the federator's plan. Raises SettingsError if settings contradict each other."""
    from foltr.federator.job import UnlearningPolicy
    from foltr.federator.pace import PacePolicy
    from foltr.federator.plan import FederationPlan
    from foltr.federator.round import RoundPolicy

    learning, schema = read_schema_setting(settings.learning)
    rounds, secure = _with_target(settings.rounds), choose_privacy(settings, identity)
    more = read_logging_policy(learning)
    training, chosen_ranker = choose_method(learning, learning.n_features, rounds.max_clients, **more)
    unlearning, defence = settings.unlearning, settings.defence
    target = rounds.updates_per_round
    return FederationPlan(
        identity.federation,
        learning.n_features,
        RoundPolicy(
            min_clients=rounds.min_clients,
            max_clients=rounds.max_clients,
            min_time_s=rounds.min_time_s,
            max_time_s=rounds.max_time_s,
            pacing=rounds.pacing,
            over_selection=rounds.over_selection,
            staleness_limit=rounds.staleness_limit if rounds.pacing is Pacing.BUFFERED else 0,
            rule=choose_rule(defence, 1 if secure is None else secure.policy.policy.cohorts),
        ),
        training,
        chosen_ranker=chosen_ranker,
        schema=schema,
        first_weights=read_initial_model(learning, chosen_ranker, schema),
        stop_after_round=rounds.stop_after_round,
        enrolment_key=identity.enrolment_key,
        key_sequence=identity.key_sequence,
        unlearning=UnlearningPolicy(
            strategy=unlearning.unlearning_strategy,
            interval=unlearning.unlearning_interval,
            every_s=unlearning.unlearn_every_s,
            after=unlearning.unlearn_after,
            deadline_s=unlearning.unlearning_deadline_s,
            may_reset=unlearning.unlearning_may_reset,
        ),
        history_rounds=rounds.history_rounds,
        anchor=defence.anchor,
        evaluation=defence.evaluation,
        secure=secure,
        pace=None if target is None else PacePolicy(target, rounds.shortest_period_s, rounds.longest_period_s),
    )


async def _serve(settings: Settings) -> None:
    from foltr.federator.leading.ending import ending_noted
    from foltr.federator.leading.keeper import new_holder
    from foltr.federator.service import FederatorService
    from foltr.storage.database import Database
    from foltr.storage.federations import get_federation
    from foltr.storage.keys import KeyStore, keys_folder
    from foltr.storage.leases import LEADER_IDLE_S
    from foltr.storage.migrate import require_head

    federation = settings.federation
    try:
        identity = federator_identity(settings)
        federation = identity.federation
        plan = make_plan(settings, identity)
    except SettingsError as error:
        await _note_refused(settings.db_url, federation, error)
        raise
    address = identity.address
    if identity.key is None:
        log.warning("signatures_disabled", hint=_UNSIGNED)
    if identity.policy is not None and plan.secure is None:
        log.warning("policy_unused", hint="devices that know the policy send nothing to a trusted federation")
    if plan.rule_warning is not None:
        log.warning("min_clients_too_low", hint=plan.rule_warning)
    under = None if plan.secure is None else plan.secure.policy.policy
    if (cause := plan.no_votes_because(under)) is not None:
        log.info("voting_disabled", hint=f"devices do not vote on models: {cause}")
    if (cause := plan.no_evaluation_because(under)) is not None:
        log.info("evaluation_disabled", hint=f"devices do not evaluate models: {cause}")
    data_keys = KeyStore(keys_folder(settings.db_url, settings.keys))
    connecting = Database.connect(
        settings.db_url,
        retry_for_s=settings.retry_for_s,
        keys=data_keys,
        idle_timeout_s=LEADER_IDLE_S,
        process=new_holder(),
    )
    async with await connecting as database, ending_noted(database, plan.federation):
        await require_head(database)
        stored = await get_federation(database, plan.federation)
        if stored is not None:
            plan = plan.with_activation(stored.activation)
        service = FederatorService(
            plan,
            database,
            address,
            key=identity.key,
            give_up_after_s=settings.give_up_after_s,
            alive_file=AliveFile(settings.alive_file),
            shares=settings.role == "leader",
            standby=settings.standby,
        )
        stop_on_signal(service.stop)

        def note_started() -> None:
            log.info("federator_started", federation=plan.federation, broker=str(address), db=database.location)
            _pass_over_in_collections()

        with metrics_port(settings.metrics_host, settings.metrics_port, service.read_measures):
            await service.run(on_started=note_started)
    log.info("federator_stopped", federation=plan.federation)


async def _note_refused(db_url: str, federation: str, error: SettingsError) -> None:
    """Note in an existing database that a federator could not start: the verdict then says why none leads."""
    from foltr.federator.leading.ending import note_ending
    from foltr.storage.database import Database

    with contextlib.suppress(FoltrError):
        require_existing(db_url)
        async with await Database.connect(db_url) as database:
            await note_ending(database, federation, error)


def _with_target(rounds: Rounds) -> Rounds:
    """Apply the target of updates, if set: a round ends when it is reached.

    Raises:
        SettingsError: max_clients differs from the target, or min_clients exceeds it.
    """
    target = rounds.updates_per_round
    if target is None:
        return rounds
    if "max_clients" in rounds.model_fields_set and rounds.max_clients != target:
        raise SettingsError(
            f"max_clients: {rounds.max_clients}, but a round ends with updates_per_round ({target}); "
            "leave max_clients out"
        )
    if target < rounds.min_clients:
        raise SettingsError(
            f"updates_per_round: {target} is below min_clients ({rounds.min_clients}), so no round could make a "
            "model; raise it, or lower min_clients"
        )
    return rounds.model_copy(update={"max_clients": target})


def _pass_over_in_collections() -> None:
    """Exclude the start-up objects from garbage collection, and collect less often.

    The start-up objects, every module and every client, live as long as the process. Scanning them took 4 % of an
    update's processor time with a thousand devices. Most of an update's own objects are freed by reference counting
    when its receipt is sent, and scanning thousands of waiting ones took another 5 %.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_N_NEW_OBJECTS, 20, 20)


def share_one_heap() -> bool:
    """Make all threads allocate from one heap. Call it before starting threads.

    glibc gives each new thread a heap that keeps the memory freed in it. Large updates are unpacked in one thread and
    stored in another, so a batch was held several times. Python threads rarely allocate at the same moment.

    Returns:
        whether it was done: not without glibc, or if the environment configures its heaps.
    """
    if sys.platform != "linux" or any(os.environ.get(name) for name in _SAID_BY):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_ARENA_MAX, 1) == 1


async def serve_ingest(settings: Settings) -> None:
    """Run an ingest worker until SIGTERM or Ctrl-C. Its leader's decisions come from the database, not settings."""
    from foltr.federator.ingest.service import IngestService, wait_for_federation
    from foltr.storage.cipher import require_keys
    from foltr.storage.database import Database
    from foltr.storage.keys import KeyStore, keys_folder
    from foltr.storage.leases import LEADER_IDLE_S
    from foltr.storage.migrate import require_head

    identity = federator_identity(settings)
    if identity.address.username == FEDERATOR_USER:
        raise SettingsError(
            f"credentials: {FEDERATOR_USER} is the leader's user, and a worker would take over its session at the "
            "broker. `foltr broker worker NAME` writes a worker's file"
        )
    if identity.key is None:
        log.warning("signatures_disabled", hint=_UNSIGNED)
    await require_sharing(identity.address, identity.federation)
    data_keys = KeyStore(keys_folder(settings.db_url, settings.keys), is_leaders=True)
    # A worker stopped within a transaction holds a lock on the federation's row, which its leader needs.
    connecting = Database.connect(settings.db_url, settings.retry_for_s, data_keys, LEADER_IDLE_S)
    async with await connecting as database:
        await require_head(database)
        stopped = asyncio.Event()
        stop_on_signal(stopped.set)
        known = (identity.federation, identity.enrolment_key, identity.key_sequence)
        finding = asyncio.create_task(wait_for_federation(database, *known))
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait({finding, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not finding.done():
            finding.cancel()
            return
        plan = finding.result()
        await require_keys(database, plan.federation)
        service = IngestService(
            plan,
            database,
            identity.address,
            key=identity.key,
            give_up_after_s=settings.give_up_after_s,
            alive_file=AliveFile(settings.alive_file),
        )
        stopping.add_done_callback(lambda _: service.stop())

        def note_started() -> None:
            where = {"broker": str(identity.address), "db": database.location}
            log.info("ingest_worker_started", federation=plan.federation, **where)

        with metrics_port(settings.metrics_host, settings.metrics_port, service.read_measures):
            await service.run(on_started=note_started)
        stopping.cancel()
    log.info("ingest_worker_stopped", federation=plan.federation)


async def require_sharing(address: "BrokerAddress", federation: str) -> None:
    """Test with messages that the broker shares updates among workers. Skipped if the broker cannot be reached.

    Raises:
        UnavailableError: it refuses a shared subscription, or grants it and delivers nothing.
    """
    for is_last in (False, True):
        try:
            trial = await probe_shared_subscription(federation, [address], _N_TRIED)
        except UnavailableError:
            return  # the broker link reports this and retries
        if trial.sharing not in (SharedSubscriptionResult.NONE, SharedSubscriptionResult.REFUSED):
            return
        if is_last:
            found = "refuses the subscription of a group"
            if trial.sharing is SharedSubscriptionResult.NONE:
                found = f"grants the subscription of a group, but delivers none of {trial.n_sent} messages"
            advice = "do not use foltr federator run --role ingest at this broker"
            raise UnavailableError(f"broker_url: the broker {found}; {advice}")
