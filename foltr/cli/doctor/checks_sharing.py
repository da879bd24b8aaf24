"""What ``foltr doctor --sharing`` looks at: whether a broker shares updates out among ingest workers.

That it grants the subscription proves nothing, so messages are sent (docs/brokers.md).
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Final

from foltr.broker.address import BrokerAddress
from foltr.broker.group_probe import GroupProbe
from foltr.broker.sharing import Sharing, SharingTrial, try_sharing
from foltr.broker.visit import visiting
from foltr.cli.doctor.checks import Check, Found, ok, problem, warning
from foltr.cli.operator.identities import broker_of
from foltr.cli.settings import Settings
from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import FEDERATOR_USER, Credentials, is_worker_user, read_credentials
from foltr.core.protocol.topics import Topics

_INGEST: Final = "foltr federator run --role ingest"
# Where everybody may have as many sessions as they like.
_WORKERS_TRIED: Final = 2
_N_PROBES: Final = 40
_ANSWER_S: Final = 2.0


@dataclass
class SharingAsked:
    """As whom and where sharing is to be tried.

    Attributes:
        files: credentials of workers that do not run; who looks is one, too, with a worker's credentials.
        servers: addresses of other servers of the same broker; a worker is tried at each.
        prober: a worker that may be used to probe the group of those that run, once sharing works.
    """

    settings: Settings
    credentials: Credentials | None
    files: Sequence[Path]
    servers: Sequence[str]
    prober: BrokerAddress | None = None

    @property
    def federation(self) -> str:
        return self.settings.federation if self.credentials is None else self.credentials.federation


async def _workers(asked: SharingAsked) -> Found:
    workers = _as_whom(asked)
    if not workers:
        step = "Look as one that does not run (`foltr broker worker NAME`): --credentials worker-1.json --worker ..."
        return warning("not tried: workers have users of their own where a broker has any", step)
    trial = await try_sharing(asked.federation, workers)
    if trial.sharing.may_be_used:
        asked.prober = workers[0]
    return told(trial)


def told(trial: SharingTrial) -> Found:
    """Say what a trial has found, and whether workers may be used."""
    n, n_workers = trial.n_sent, len(trial.n_received)
    shares = f"{n} messages to a group of {n_workers} workers ({', '.join(map(str, trial.n_received))})"
    match trial.sharing:
        case Sharing.SHARED if n_workers == 1:
            more = "Name another that does not run: --worker FILE"
            return warning(f"{n} messages to one worker arrived once each: that several share is not shown", more)
        case Sharing.SHARED:
            return ok(f"each of {shares} arrived once: {_INGEST} may be used at this broker")
        case Sharing.ONE_TAKES_ALL:
            return warning(f"each of {shares} arrived once, all at one", "Set the broker to share out in turn")
        case Sharing.COPIED:
            one = "Use one worker; if servers are bridged and not one broker, connect all workers to one of them"
            return warning(f"{trial.n_repeated} of {shares} arrived more than once", one)
        case Sharing.LOST:
            return problem(f"{trial.n_lost} of {shares} arrived nowhere: devices would send again and again")
        case Sharing.NONE:
            return problem(f"the broker grants the subscription of a group, and of {n} messages delivers none")
        case Sharing.REFUSED:
            return problem("the broker refuses the subscription of a group")
        case Sharing.UNHEARD:
            lets = "`foltr broker worker NAME` lets it read them; several servers have to be one broker"
            return problem("messages of updates do not reach a worker by a plain subscription either", lets)


async def _group(asked: SharingAsked) -> Found | None:
    """Send messages to the group of the workers that run, as one that does not."""
    if asked.prober is None:
        return None
    user = asked.prober.username
    probe = GroupProbe(Topics(asked.federation), user or f"@ingest.probe-{secrets.token_hex(8)}")
    session, heard = user or f"foltr-probe-{secrets.token_hex(8)}", [probe.answers_on]
    async with visiting(asked.prober, session, heard, lambda one: probe.receive(one.payload), _ANSWER_S) as link:
        n_unanswered = await probe.count_unanswered(link, _N_PROBES, _ANSWER_S)
    if n_unanswered == 0:
        return ok(f"the workers that run have answered each of {_N_PROBES} messages to their group")
    if n_unanswered == _N_PROBES:
        return warning("no worker has answered: none runs here with this key, or somebody else takes all of it", "")
    return problem(f"{n_unanswered} of {_N_PROBES} messages were answered by none: a worker hangs, or a stranger takes")


def _as_whom(asked: SharingAsked) -> list[BrokerAddress]:
    """Return how each worker connects, to the servers in turn; none if who looks must not be one."""
    settings, credentials = asked.settings, asked.credentials
    mine = BrokerAddress.parse(settings.broker_url) if credentials is None else broker_of(settings, credentials)
    users = [broker_of(settings, _worker(path, asked.federation)) for path in asked.files]
    if is_worker_user(mine.username):
        users = [mine, *(user for user in users if user.username != mine.username)]
    elif not users and mine.username != FEDERATOR_USER and (credentials is None or credentials.role == "federator"):
        users = [mine] * max(_WORKERS_TRIED, 1 + len(asked.servers))
    if not users or not asked.servers:
        return users
    if len(users) <= len(asked.servers):
        raise SettingsError(f"server: {1 + len(asked.servers)} servers need as many workers; name more: --worker FILE")
    places = cycle([users[0], *map(BrokerAddress.parse, asked.servers)])
    return [replace(user, host=at.host, port=at.port) for user, at in zip(users, places, strict=False)]


def _worker(path: Path, federation: str) -> Credentials:
    worker = read_credentials(path, "federator")
    if worker.federation != federation:
        raise SettingsError(f"worker: {path} is for the federation {worker.federation!r}, not for {federation!r}")
    if worker.broker.username == FEDERATOR_USER:
        advice = "`foltr broker worker NAME` writes a worker's"
        raise SettingsError(f"worker: {path} is the leader's, whose session at the broker would be taken; {advice}")
    return worker


_REKEY: Final = "Restart the workers; if it stays so, `foltr federator rotate-key` gives the group another name"
SHARING: Final = (
    Check("ingest workers", _workers, f"Do not use {_INGEST} at this broker: one federator takes all updates"),
    Check("workers' group", _group, _REKEY),
)
