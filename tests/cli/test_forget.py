"""``foltr forget``: by the operator, by the client itself, and as a payload for another program."""

import asyncio
import base64
import json

import pytest
from cli.commands import foltr
from integration.deployment import FEDERATION, Deployment, client_name, until
from integration.test_forgetting import completed, devices_of, start

from broker.address import BrokerAddress
from broker.link import MqttLink
from foltr.credentials import write_secret
from foltr.erasure.receipt import verify_receipt
from storage.erasure import list_erasures


async def command(*words: object, timeout_s: float = 90):
    return await asyncio.to_thread(foltr, *map(str, words), timeout_s=timeout_s)


async def erased(deployment: Deployment, n: int) -> None:
    async def enough() -> bool:
        return len(await list_erasures(deployment.database, FEDERATION)) >= n

    await until(enough, 20.0, f"there are no {n} erasures")


async def test_everybody_may_ask_in_their_own_way(mosquitto_server, tmp_path):
    """The operator waits for the receipt and gets it again; the client asks with its credentials; a payload will do."""
    url = f"sqlite:///{tmp_path}/foltr.sqlite"
    async with Deployment(tmp_path, mosquitto_server.url, url, 4) as deployment:
        own = tmp_path / "own.json"
        write_secret(own, deployment.devices[1].model_dump_json())
        start(deployment)
        async with devices_of(deployment, tmp_path):
            await completed(deployment, 4)
            operator = ("--operator", tmp_path / "operator")
            file = tmp_path / "receipt.jws"
            done = await command("forget", client_name(0), *operator, "--wait", "--timeout", 60, "--receipt", file)
            assert done.returncode == 0, done.stderr
            receipt = verify_receipt(file.read_text().strip(), deployment.devices[0].federator_public_key)
            assert receipt.requested_by == "operator"
            again = await command("forget", client_name(0), *operator, "--wait", "--timeout", 60, "--json")
            assert json.loads(again.stdout)["receipt"] == file.read_text().strip()
            unknown = await command("forget", "nobody", *operator, "--wait", "--timeout", 20)
            assert unknown.returncode == 1
            assert "unknown_client" in unknown.stderr

            asked = await command("forget", "--credentials", own)
            assert asked.returncode == 0, asked.stderr
            await erased(deployment, 2)

            printed = await command("forget", client_name(2), *operator, "--print-payload", "--json")
            message = json.loads(printed.stdout)
            address = BrokerAddress.parse(mosquitto_server.url)
            link = MqttLink(address, client_id="pub", subscriptions=(), on_message=lambda _: None, persistent=False)
            async with link:
                await link.wait_connected(5.0)
                await link.publish(message["topic"], base64.b64decode(message["payload"]), retain=message["retain"])
                await erased(deployment, 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "client: name the client"),
        (("a/b",), "client: 'a/b' is not a name"),
        (("device-1", "--receipt", "file"), "receipt: there is one once"),
        (("device-1", "--wait", "--timeout", "0"), "timeout: 0"),
    ],
)
def test_what_makes_no_sense_is_one_line(words, said, tmp_path):
    """Exit code 2 and what to do instead."""
    done = foltr("forget", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
