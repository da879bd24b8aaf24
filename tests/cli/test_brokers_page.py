"""docs/servers.md: its commands let workers in, each as a user whose file tells whether the broker shares out."""

import shlex

from cli.commands import foltr
from cli.snippets import blocks
from support.servers import ProvisionedMosquitto
from support.waiting import PATIENCE_S

from foltr.broker import shared_subscriptions
from foltr.broker.address import BrokerAddress
from foltr.broker.shared_subscriptions import SharedSubscriptionResult, probe_shared_subscription
from foltr.core.operator.credentials import read_credentials


async def test_the_workers_of_the_page_share(tmp_path, monkeypatch):
    """Two workers are let in at a Mosquitto with users, and each message arrives at one of them."""
    for limit in ("_ANSWER_S", "_QUIET_S"):
        monkeypatch.setattr(shared_subscriptions, limit, PATIENCE_S)
    server = ProvisionedMosquitto(tmp_path, "passwords")
    (tmp_path / "foltr-operator").symlink_to(server.operator_dir)
    foltr("device", "enrol", "device-1", cwd=tmp_path, code=0)
    foltr("db", "upgrade", cwd=tmp_path, code=0)
    server.start()
    try:
        for line in "".join(blocks("docs/servers.md#brokers", "sh")).splitlines():
            foltr(*shlex.split(line)[1:], cwd=tmp_path, code=0)
        files = [read_credentials(tmp_path / f"worker-{number}.json", "federator") for number in (1, 2)]
        trial = await probe_shared_subscription(files[0].federation, [BrokerAddress.of(one.broker) for one in files])
    finally:
        server.stop()
    assert (trial.sharing, trial.n_received) == (SharedSubscriptionResult.SHARED, (20, 20))
