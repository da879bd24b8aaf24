"""A federator's metrics on a port of its own: true, by the conventions, and only where a port is asked for."""

import asyncio
import signal
import socket
from urllib.parse import urlsplit

from integration.deployment import FEDERATION, SQLITE
from integration.scraped import samples, scrape, shown_at
from support.waiting import until

from foltr.storage.leases import list_standbys

pytestmark = SQLITE

N_CLIENTS = 2
QUIET = {"FOLTR_LOG_LEVEL": "info", "NO_COLOR": "1"}


async def test_it_answers_while_it_waits_for_its_broker(deployment, tmp_path):
    """And says so; an idle connection keeps it from ending no more than a slow reader would."""
    deployment.start_federator(1, broker_url="mqtt://127.0.0.1:1", FOLTR_METRICS_PORT="0", **QUIET)
    url = await shown_at(tmp_path / "federator.log")
    found = samples(await scrape(url))
    assert found["foltr_federator_broker_connected",] == 0
    assert ("foltr_federator_round_number",) not in found
    address = urlsplit(url)
    _, idle = await asyncio.open_connection(address.hostname, address.port)
    deployment.federator.send_signal(signal.SIGTERM)
    assert await deployment.exit_code() == 0
    idle.close()


async def test_a_standby_says_nothing_of_a_broker_that_it_does_not_use(deployment):
    """Else whoever stands by would be an alert; from when it is to lead it says whether the broker is there."""
    leader = deployment.service(1000, deployment.database)
    standby = deployment.service(1000, deployment.database, standby=True)
    leading = asyncio.create_task(leader.run())
    await until(lambda: leader.read_measures().leads.now[""] == 1, "the first one does not lead")
    waiting = asyncio.create_task(standby.run())

    async def stands_by() -> bool:
        return len(await list_standbys(deployment.database, FEDERATION)) == 1

    await until(stands_by, "the second one does not wait")
    shown = standby.read_measures()
    assert (shown.leads.now[""], shown.broker_up.now[""]) == (0, None)
    leader.stop()
    await leading

    def leads_and_serves() -> bool:
        shown = standby.read_measures()
        return shown.leads.now[""] == shown.broker_up.now[""] == 1

    await until(leads_and_serves, "the second one does not serve")
    standby.stop()
    await waiting


async def test_a_port_that_is_taken_is_said(deployment, tmp_path):
    """Before the federation is claimed: another federator goes on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        deployment.start_federator(1, FOLTR_METRICS_PORT=port)
        assert await deployment.exit_code() == 2
    assert f"metrics_port: 127.0.0.1:{port}" in (tmp_path / "federator.log").read_text()
