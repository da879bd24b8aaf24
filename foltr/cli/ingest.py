"""``foltr federator run --role ingest``: a worker that takes updates, beside the leader of its federation."""

import asyncio
import signal

import structlog

from foltr.broker.address import BrokerAddress
from foltr.broker.sharing import Sharing, try_sharing
from foltr.cli.metrics_port import metrics_port
from foltr.cli.operator.identities import federator_identity
from foltr.cli.settings import Settings
from foltr.core.alive_file import AliveFile
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.operator.credentials import FEDERATOR_USER

log = structlog.get_logger(__name__)

# That nothing comes of so many, twice, is no chance.
_N_TRIED = 8


async def serve_ingest(settings: Settings) -> None:
    """Run a worker until SIGTERM or Ctrl-C. What its leader decides it reads from the database, and from no setting."""
    from foltr.federator.ingest.service import IngestService, wait_for_federation
    from foltr.storage.cipher import require_keys
    from foltr.storage.database import Database
    from foltr.storage.keys import KeyStore, keys_folder
    from foltr.storage.leases import LEADER_IDLE_S
    from foltr.storage.migrate import require_head

    identity = federator_identity(settings)
    if identity.address.username == FEDERATOR_USER:
        raise SettingsError(
            f"credentials: {FEDERATOR_USER} is the leader's user, whose session at the broker a worker would take. "
            "`foltr broker worker NAME` writes a worker's file"
        )
    if identity.key is None:
        log.warning("unsigned", hint="any client is taken under any name; see `foltr device enrol --help`")
    await require_sharing(identity.address, identity.federation)
    retry_for_s = float("inf") if settings.give_up_after_s is None else settings.give_up_after_s
    data_keys = KeyStore(keys_folder(settings.db_url, settings.keys), is_leaders=True)
    # A worker that is stopped within a transaction has the federation's row, which its leader needs.
    connecting = Database.connect(settings.db_url, retry_for_s, data_keys, LEADER_IDLE_S)
    async with await connecting as database:
        await require_head(database)
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        finding = asyncio.create_task(
            wait_for_federation(
                database,
                identity.federation,
                identity.enrolment_key,
                identity.key_sequence,
            )
        )
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
    """See, by messages, that the broker gives updates to workers; where it cannot be reached nothing is seen.

    Raises:
        UnavailableError: it grants the subscription of a group and delivers nothing, or refuses it.
    """
    for is_last in (False, True):
        try:
            trial = await try_sharing(federation, [address], _N_TRIED)
        except UnavailableError:
            return  # the link to the broker says so, and waits
        if trial.sharing not in (Sharing.NONE, Sharing.REFUSED):
            return
        if is_last:
            found = "refuses the subscription of a group"
            if trial.sharing is Sharing.NONE:
                found = f"grants the subscription of a group, and of {trial.n_sent} messages delivers none"
            advice = "do not use foltr federator run --role ingest at this broker"
            raise UnavailableError(f"broker_url: the broker {found}; {advice}")
