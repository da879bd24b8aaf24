"""``foltr erasure request``: by the operator, by the client itself, and as a payload for another program."""

import asyncio
import base64
import contextlib
import json
import shlex

import pytest
from cli.commands import foltr, foltr_process
from cli.doctor.test_doctor import announcement
from cli.silence import give_up_once, hears_another_federator
from integration.deployment import DIM, FEDERATION, ONE_EACH, Deployment, client_name, enrol
from integration.test_forgetting import click, devices_of, joined, start, taught
from support.databases import open_migrated
from support.message_publisher import publish_once
from support.waiting import PATIENCE_S, until

from foltr.broker.address import BrokerAddress
from foltr.core.erasure.receipt import verify_receipt
from foltr.core.operator.credentials import read_credentials, write_secret
from foltr.core.operator.erasure_request_file import request_file
from foltr.core.protocol.codec import encode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.topics import Topics
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment
from foltr.federator.job import UnlearningPolicy
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.service import FederatorService
from foltr.operations.operator_access import access_to
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.keys import KeyStore
from foltr.storage.queries import list_rounds


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path):
    """Whoever asks notes where the audit log ends, in the folder where it asks."""
    monkeypatch.chdir(tmp_path)


async def command(*words: object):
    return await asyncio.to_thread(foltr_process, *map(str, words))


async def erased(deployment: Deployment, n: int) -> None:
    async def enough() -> bool:
        return len(await list_erasures(deployment.database, FEDERATION)) >= n

    await until(enough, f"there are no {n} erasures")


async def test_everybody_may_ask_in_their_own_way(mosquitto_server, tmp_path):
    """The operator waits for the receipt and gets it again; the client asks with its credentials; a payload will do."""
    url = f"sqlite:///{tmp_path}/foltr.sqlite"
    async with Deployment(tmp_path, mosquitto_server.url, url, 4) as deployment:
        own = tmp_path / "own.json"
        write_secret(own, deployment.devices[1].model_dump_json())
        start(deployment)
        async with devices_of(deployment, tmp_path):
            await joined(deployment, 4)
            await taught(deployment, client_name(0))
            operator = ("--operator", tmp_path / "operator")
            file = tmp_path / "receipt.jws"
            done = await command(
                "erasure", "request", client_name(0), *operator, "--wait", "--timeout", 200, "--receipt", file
            )
            assert done.returncode == 0, done.stderr
            receipt = verify_receipt(file.read_text().strip(), deployment.devices[0].federator_public_key)
            assert receipt.requested_by == "operator"
            check = shlex.split(done.stdout.strip().partition("check it: ")[2])
            assert (await command(*check[1:])).returncode == 0, done.stdout
            again = await command("erasure", "request", client_name(0), *operator, "--wait", "--timeout", 200, "--json")
            assert json.loads(again.stdout)["receipt"] == file.read_text().strip()
            unknown = await command("erasure", "request", "nobody", *operator, "--wait", "--timeout", 200)
            assert unknown.returncode == 1
            warning, *_, refusal = unknown.stderr.strip().splitlines()
            assert "nobody was never enrolled with" in warning
            assert "unknown_client" in refusal
            assert "warning" not in done.stderr + again.stderr
            asked = await command("erasure", "request", "--credentials", own, "--timeout", 200)
            assert asked.returncode == 0, asked.stderr
            own_receipt = verify_receipt(asked.stdout.strip(), deployment.devices[0].federator_public_key)
            assert own_receipt.requested_by == "device"
            assert not request_file(own).exists()
            printed = await command("erasure", "request", client_name(2), *operator, "--print-payload", "--json")
            message = json.loads(printed.stdout)
            sent = (message["topic"], base64.b64decode(message["payload"]))
            access = access_to(mosquitto_server.url)
            await asyncio.to_thread(publish_once, access, "pub", *sent, retain=message["retain"])
            await erased(deployment, 3)


@pytest.mark.nightly
async def test_a_running_device_and_the_command_do_not_keep_each_other_out(guarded_broker, tmp_path):
    """Both have the one session that its user may have: the command gets the receipt, the device is told, and stays."""
    folder, names = guarded_broker.operator_dir, [client_name(i) for i in range(3)]
    enrolled = await command("device", "enrol", *names, "--operator", folder, "--out-dir", tmp_path)
    assert enrolled.returncode == 0, enrolled.stderr
    devices = [read_credentials(tmp_path / f"{name}.json", "device") for name in names]
    federator = read_credentials(folder / "federator.json", "federator")
    plan = FederationPlan(
        "mail",
        DIM,
        RoundPolicy(2, 3, 1.0, 5.0),
        ONE_EACH,
        enrolment_key=federator.enrolment_public_key,
        # Longer than the first visits, so that there are several.
        unlearning=UnlearningPolicy(Strategy.FED_ERASER, every_s=2.0, swap_every_s=0.0, step_s=1.0),
    )
    async with await open_migrated(f"sqlite:///{tmp_path}/foltr.sqlite", KeyStore(tmp_path / "keys")) as database:
        service = FederatorService(plan, database, BrokerAddress.of(federator.broker), key=federator.key)
        async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as stack:
            serving = group.create_task(service.run())
            clients = [
                await stack.enter_async_context(EdgeClient(one, store=":memory:", experiment=Experiment(seed=i)))
                for i, one in enumerate(devices)
            ]
            clicking = [asyncio.create_task(click(client, i)) for i, client in enumerate(clients)]

            async def learned() -> bool:
                return len(await list_rounds(database, "mail")) >= 3

            await until(learned, "there are no rounds")
            own = ("--credentials", tmp_path / f"{names[0]}.json", "--wait", "--timeout", 200)
            done = await command("erasure", "request", *own, "--receipt", tmp_path / "receipt.jws")
            assert done.returncode == 0, done.stderr
            receipt = verify_receipt((tmp_path / "receipt.jws").read_text().strip(), federator.federator_public_key)
            assert (receipt.requested_by, receipt.strategy) == ("device", "fed_eraser")
            await until(lambda: clients[0].forgotten, "the device was kept out")
            await clients[0].wait_connected(PATIENCE_S)
            # And the operator's commands, of which there may be two at once.
            order = ("--operator", folder, "--wait", "--timeout", 200)
            both = await asyncio.gather(*(command("erasure", "request", name, *order) for name in names[:2]))
            assert [one.returncode for one in both] == [0, 0], [one.stderr for one in both]
            for task in clicking:
                task.cancel()
            await asyncio.gather(*clicking, return_exceptions=True)
            service.stop()
            await serving


async def test_who_is_not_answered_is_told_what_may_be_the_matter(mosquitto_server, tmp_path, monkeypatch):
    """In lines that come by themselves, what to look at; and that the order is kept."""
    folder = tmp_path / "operator"
    enrol(folder, mosquitto_server.url, 1)
    asked = ("erasure", "request", client_name(0), "--operator", folder)
    give_up_once(monkeypatch)
    silent = await asyncio.to_thread(foltr, *asked, code=3)
    first, last = silent.stderr.splitlines()
    assert first == "waiting for the federator's answer; the broker has the order; check that the federator runs"
    assert "Order 1 is kept in" in last
    assert "not signed" not in last
    access, topic = access_to(mosquitto_server.url), Topics(FEDERATION).round
    round_ = encode(announcement(1, 0.0, federation=FEDERATION), topic, 0, SigningKey.generate())
    await asyncio.to_thread(publish_once, access, "other", topic, round_, retain=True)
    give_up_once(monkeypatch, hears_another_federator)
    other = await asyncio.to_thread(foltr, *asked)
    assert "the round announced here is not signed by it" in other.stderr.splitlines()[-1]


def test_an_order_that_is_printed_twice_is_one_order(tmp_path):
    """Who was never enrolled is warned of, and a revoked one is not: a register may be newer than who joined."""
    foltr("device", "enrol", "device-1", "device-2", "--federation", "mail", cwd=tmp_path, code=0)
    foltr("device", "revoke", "device-2", "--offline", cwd=tmp_path, code=0)

    def printed(name):
        return foltr("erasure", "request", name, "--print-payload", "--json", cwd=tmp_path, code=0)

    first, again, revoked = map(printed, ("device-1", "device-1", "device-2"))
    assert first.stdout == again.stdout
    assert json.loads(first.stdout)["payload"] != json.loads(revoked.stdout)["payload"]
    assert first.stderr + revoked.stderr == ""
    other = printed("device-11")
    assert other.stderr.startswith("warning: device-11 was never enrolled with foltr-operator")
    assert "unknown_client" in other.stderr
    assert json.loads(other.stdout)["topic"] == "foltr/v1/mail/operator"
    listed = json.loads(foltr("operator", "orders", "--json", cwd=tmp_path).stdout)["orders"]
    assert [order["number"] for order in listed] == [1, 2, 3, 4]


def test_what_makes_no_sense_is_one_line(tmp_path):
    """Exit code 2 and what to do instead; without a folder how to get one, or do without."""
    for words, said in (
        (("device-1",), "--operator"),
        (("device-1",), "`foltr device enrol` makes one"),
        (("device-1",), "--credentials FILE"),
        ((), "client: name the client"),
        (("a/b",), "client: 'a/b' is not a name"),
        (("device-1", "--receipt", "file"), "receipt: it exists only once"),
        (("device-1", "--wait", "--receipt", "nowhere/file"), "receipt: nowhere is no folder that can be written to"),
        (("device-1", "--wait", "--timeout", "0"), "timeout: 0"),
    ):
        assert said in foltr("erasure", "request", *words, cwd=tmp_path, code=2).stderr, words
        assert list(tmp_path.iterdir()) == []
