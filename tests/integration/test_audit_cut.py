"""Somebody cuts the end of the audit log in SQL, and all who heard of it before see that, on both databases."""

import contextlib
import json

from cli.commands import foltr_process
from integration.deployment import FEDERATION, Deployment, client_name, on
from sqlalchemy import text
from support.waiting import PATIENCE_S, until

from foltr.core.protocol.signing import key_to_text
from foltr.core.protocol.verdicts import Reason
from foltr.edge_client.client import EdgeClient
from foltr.operations.overview import read_overview
from foltr.operations.verdict import judge
from foltr.storage.queries import list_clients, list_events

N_CLIENTS = 4
DIFFERS = "audit_log_differs"
TAMPERING = ("DELETE FROM erasures WHERE audit_seq = 4", "DELETE FROM audit_log WHERE seq > 2")


class Officer:
    """Somebody with a folder, the federator's key and the addresses of database and broker."""

    def __init__(self, folder, deployment: Deployment) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "federator.pub").write_text(key_to_text(deployment.devices[0].federator_public_key))
        self._database, self._broker = deployment.database_url, deployment.broker_url
        self._credentials = str(deployment.operator_file)

    def verify(self, *options: str):
        return self._foltr("erasure", "verify-log", "--db", self._database, *options)

    def ask_broker(self, *options: str):
        return self._foltr("erasure", "log-head", "--credentials", self._credentials, *options)

    def keep(self, receipt: str | None, name: str) -> None:
        """Check a receipt, and keep it."""
        assert receipt is not None
        (self.folder / name).write_text(receipt)
        assert self._foltr("erasure", "verify", name, "--key", "federator.pub").returncode == 0

    def _foltr(self, *arguments: str):
        return foltr_process(*arguments, cwd=self.folder)


@on("sqlite")
async def test_everybody_who_heard_of_an_entry_sees_that_it_was_cut(mosquitto_server, migrated_url, tmp_path, operator):
    """The database alone does not show it. The federator, devices, a remembered receipt and the published head do."""
    async with contextlib.AsyncExitStack() as stack:
        deployment = await stack.enter_async_context(
            Deployment(tmp_path, mosquitto_server.url, migrated_url, N_CLIENTS)
        )
        deployment.start_federator(10)
        leavers, (online, away) = await entered(stack, deployment, tmp_path)
        officer = Officer(tmp_path / "officer", deployment)
        for number, leaver in enumerate(leavers):
            result = await leaver.forget_me(timeout_s=PATIENCE_S)
            officer.keep(result.receipt, f"{number}.jws")
        await until(lambda: (online.newest_audit_entry, away.newest_audit_entry) == (4, 4), "a device is behind")
        whole = officer.verify("--key", "federator.pub", "--credentials", str(deployment.operator_file))
        assert whole.returncode == 0, whole.stderr
        assert "matches entry 4" in whole.stdout
        head = json.loads(officer.ask_broker("--json").stdout)
        noted = f"{head['entry']}:{head['hash']}"

        await away.__aexit__(None, None, None)
        deployment.federator.terminate()
        assert await deployment.exit_code() == 0
        await cut(deployment)
        before = officer.verify()
        assert before.returncode == 0, before.stderr  # with nothing to compare with, it is whole
        for witness in (
            ("--key", "federator.pub", "--receipt", "1.jws"),
            ("--entry", noted),
            ("--credentials", str(deployment.operator_file)),
        ):
            done = officer.verify(*witness)
            assert done.returncode == 1, done.stdout
            assert "names entry 4, but the log ends with entry 2" in done.stderr

        deployment.start_federator(10)
        await until(lambda: online.audit_log_cut is not None, "the device sees nothing")
        assert (online.audit_log_cut.before, online.audit_log_cut.after) == (4, 2)
        assert "audit_log_differs" in deployment.said()
        events = [one.detail for one in await list_events(deployment.database, FEDERATION) if one.kind == DIFFERS]
        assert [detail.endswith("was published, but the log ends with entry 2") for detail in events] == [True]
        back = await stack.enter_async_context(device(deployment, tmp_path, 3))
        await until(lambda: back.audit_log_cut is not None, "the device that was off sees nothing")
        # By now the federator has signed the shorter log: who remembers a longer one sees it still.
        assert json.loads(officer.ask_broker("--json").stdout)["entry"] == 2
        assert officer.verify("--entry", noted).returncode == 1
        # The operator answers the finding, here for one whom the database does not have; the proof remains.
        assert await finds_it(deployment)
        await operator("erasure", "request", client_name(1), "--broker", deployment.broker_url)
        assert not await finds_it(deployment)
        assert officer.verify("--entry", noted).returncode == 1


async def finds_it(deployment: Deployment) -> bool:
    """Whether the verdict says that the log lacks entries."""
    verdict = judge(await read_overview(deployment.database, FEDERATION))
    return Reason.AUDIT_LOG_DIFFERS in {each.reason for each in verdict.findings}


def device(deployment: Deployment, folder, number: int) -> EdgeClient:
    return EdgeClient(deployment.devices[number], store=folder / f"{number}.sqlite")


async def entered(stack, deployment: Deployment, folder) -> tuple[list[EdgeClient], list[EdgeClient]]:
    """Devices that joined: two that will leave, and two that stay."""
    clients = [await stack.enter_async_context(device(deployment, folder, number)) for number in range(N_CLIENTS)]

    async def all_joined() -> bool:
        return len(await list_clients(deployment.database, FEDERATION)) == N_CLIENTS

    await until(all_joined, "not all have joined")
    return clients[:2], clients[2:]


async def cut(deployment: Deployment) -> None:
    """The second erasure was never, as far as the database says."""
    async with deployment.database.transaction() as connection:
        for statement in TAMPERING:
            await connection.execute(text(statement))
