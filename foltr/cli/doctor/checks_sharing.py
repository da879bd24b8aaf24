"""What ``foltr doctor --sharing`` finds: whether a broker shares updates out among ingest workers.

That it grants the subscription proves nothing, so messages are sent ([brokers.md](../../../docs/brokers.md)).
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from foltr.cli.doctor.checks import Finding, State
from foltr.cli.operator.identities import broker_of
from foltr.cli.settings import Settings
from foltr.errors import SettingsError
from foltr.operator.credentials import FEDERATOR_USER, Credentials, is_worker_user, read_credentials
from foltr.protocol.topics import Topics

if TYPE_CHECKING:
    from broker.address import BrokerAddress
    from broker.sharing import SharingTrial

WHAT = "ingest workers"
GROUP = "workers' group"
_INGEST = "foltr federator run --role ingest"
# Where everybody may have as many sessions as they like.
_WORKERS_TRIED = 2
_N_PROBES = 40
_ANSWER_S = 2.0


async def sharing_findings(
    settings: Settings, credentials: Credentials | None, worker_files: Sequence[Path], servers: Sequence[str]
) -> list[Finding]:
    """Try it, as the workers whose files are named, and as whoever looks where that is a worker.

    Args:
        servers: addresses of other servers of the same broker; a worker is tried at each.

    Raises:
        SettingsError: a file is not a worker's, or there are fewer than servers, or a server's address is none.
        UnavailableError: a worker cannot connect.
    """
    from broker.sharing import try_sharing

    users = _users(settings, credentials, worker_files)
    if not users:
        detail = (
            "not tried: workers have users of their own where a broker has any. Look as one that does not run, "
            "whose file `foltr broker worker NAME` writes: --credentials worker-1.json --worker worker-2.json"
        )
        return [Finding(WHAT, State.WARNING, detail)]
    workers = _spread(users, servers)
    federation = settings.federation if credentials is None else credentials.federation
    trial = await try_sharing(federation, workers)
    found = [told(trial, n_servers=1 + len(servers))]
    if trial.sharing.may_be_used:
        found.append(group_told(*await _probe_group(federation, workers[0])))
    return found


async def _probe_group(federation: str, user: "BrokerAddress") -> tuple[int, int]:
    """Send messages to the group of the workers that run, as one that does not; how many, and how many none answered.

    Raises:
        UnavailableError: it cannot connect.
    """
    from broker.group_probe import GroupProbe
    from broker.visit import visiting

    probe = GroupProbe(Topics(federation), user.username or f"@ingest.probe-{secrets.token_hex(8)}")
    session = user.username or f"foltr-probe-{secrets.token_hex(8)}"
    heard = [probe.answers_on]
    async with visiting(user, session, heard, lambda message: probe.receive(message.payload), _ANSWER_S) as link:
        return _N_PROBES, await probe.count_unanswered(link, _N_PROBES, _ANSWER_S)


def group_told(n_sent: int, n_unanswered: int) -> Finding:
    """Say whether what goes to the workers that run reaches them."""
    if n_unanswered == 0:
        return Finding(GROUP, State.OK, f"the workers that run have answered each of {n_sent} messages to their group")
    if n_unanswered == n_sent:
        detail = "no worker has answered: none runs here, or is of another version or another key of the federator"
        return Finding(GROUP, State.WARNING, f"{detail}; or somebody else takes all that is sent to their group")
    detail = (
        f"{n_unanswered} of {n_sent} messages to the group of the workers that run were answered by none: a worker "
        "hangs, or somebody else is in the group and takes that share of the updates. Restart the workers; if it stays "
        "so, give the federator another key (foltr federator rotate-key), which gives the group another name"
    )
    return Finding(GROUP, State.PROBLEM, detail)


def told(trial: "SharingTrial", n_servers: int = 1) -> Finding:
    """Say what a trial has found, and whether workers may be used."""
    from broker.sharing import Sharing

    n_sent, n_workers = trial.n_sent, len(trial.n_received)
    shares = f"{n_sent} messages to a group of {n_workers} workers ({', '.join(map(str, trial.n_received))})"
    match trial.sharing:
        case Sharing.SHARED if n_workers == 1:
            detail = (
                f"{n_sent} messages to a group of one worker arrived once each. That several share them is not shown: "
                "name another that does not run: --worker FILE"
            )
            return Finding(WHAT, State.WARNING, detail)
        case Sharing.SHARED:
            return Finding(WHAT, State.OK, f"each of {shares} arrived once: {_INGEST} may be used at this broker")
        case Sharing.ONE_TAKES_ALL:
            detail = (
                f"each of {shares} arrived once, all at one: others would have nothing to do. {_INGEST} may be used"
            )
            return Finding(WHAT, State.WARNING, f"{detail} once the broker is set to share out in turn")
        case Sharing.COPIED:
            where = (
                "these servers are bridged and not one broker: connect all workers to one of them"
                if n_servers > 1
                else "use one worker"
            )
            detail = f"{trial.n_repeated} of {shares} arrived more than once. Each update counts once all the same, but"
            return Finding(WHAT, State.WARNING, f"{detail} workers do each other's work again; {where}")
        case Sharing.LOST:
            detail = f"{trial.n_lost} of {shares} arrived nowhere: devices would send again and again"
        case Sharing.NONE:
            detail = f"the broker grants the subscription of a group, and of {n_sent} messages delivers none"
        case Sharing.REFUSED:
            detail = "the broker refuses the subscription of a group"
        case Sharing.UNHEARD:
            others = ", or these servers are not one broker" if n_servers > 1 else ""
            detail = (
                "messages of updates do not reach a worker by a plain subscription either: it may not write and read "
                f"them (`foltr broker worker NAME` lets it){others}"
            )
            return Finding(WHAT, State.PROBLEM, detail)
    advice = f"do not use {_INGEST} at this broker; one federator takes all updates with --role all, the default"
    return Finding(WHAT, State.PROBLEM, f"{detail}; {advice}")


def _users(settings: Settings, credentials: Credentials | None, worker_files: Sequence[Path]) -> "list[BrokerAddress]":
    """As whom workers connect, one for each; none where whoever looks must not be one."""
    from broker.address import BrokerAddress

    mine = BrokerAddress.parse(settings.broker_url) if credentials is None else broker_of(settings, credentials)
    named = [broker_of(settings, _worker(path, settings, credentials)) for path in worker_files]
    if is_worker_user(mine.username):
        return [mine, *(other for other in named if other.username != mine.username)]
    if named:
        return named
    if mine.username == FEDERATOR_USER or (credentials is not None and credentials.role != "federator"):
        return []  # its session would be taken, or its part is another
    return [mine] * _WORKERS_TRIED


def _worker(path: Path, settings: Settings, credentials: Credentials | None) -> Credentials:
    worker = read_credentials(path, "federator")
    federation = settings.federation if credentials is None else credentials.federation
    if (credentials is not None or "federation" in settings.model_fields_set) and worker.federation != federation:
        raise SettingsError(f"worker: {path} is for the federation {worker.federation!r}, not for {federation!r}")
    if worker.broker.username == FEDERATOR_USER:
        raise SettingsError(
            f"worker: {path} is the leader's, whose session at the broker would be taken; `foltr broker worker NAME` "
            "writes a worker's"
        )
    return worker


def _spread(users: "Sequence[BrokerAddress]", servers: Sequence[str]) -> "list[BrokerAddress]":
    """Each user at one of the servers, in turn, the first of which is the one they name."""
    from broker.address import BrokerAddress

    if not servers:
        return list(users)
    others = [BrokerAddress.parse(server) for server in servers]
    if len(set(users)) == 1 and not is_worker_user(users[0].username):
        users = [users[0]] * (1 + len(others))
    if len(users) <= len(others):
        raise SettingsError(
            f"server: a worker is tried at each of {1 + len(others)} servers, and {len(users)} are there; name more "
            "with --worker FILE"
        )
    if any(other.tls != users[0].tls for other in others):
        raise SettingsError(f"server: they speak TLS or none, as {users[0]} does")
    places = [users[0], *others]
    return [replace(user, host=place.host, port=place.port) for user, place in zip(users, cycle(places), strict=False)]
