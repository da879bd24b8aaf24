"""The operator's enrolment key is rotated in place: devices go on, and who has the former key is believed by nobody."""

import asyncio
import shutil

from integration.deployment import FEDERATION, client_name, on
from integration.users import contribute_once, oracle_device
from support.message_publisher import publish_once
from support.waiting import until

from foltr.core.operator.credentials import BrokerAccess, device_identity, read_credentials
from foltr.core.operator.register import read_enrolment_key
from foltr.core.protocol.enrolment import issue_federator_key, issue_roster
from foltr.core.protocol.operator_keys import issue_link, issue_succession
from foltr.core.protocol.orders import QuarantineClient
from foltr.core.protocol.roster import FederatorKey, Revocation, Roster
from foltr.core.protocol.signed_orders import issue_order
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics
from foltr.storage.orders import list_orders
from foltr.storage.queries import list_events

N_CLIENTS = 2
pytestmark = [on("postgresql")]

TOPICS = Topics(FEDERATION)
# A full round has one update.
LONG = {"max_time_s": 600.0}
ONE = ("--min-clients", "1", "--max-clients", "1")


def refuses(client):
    return client.blocker is not None and "foltr device enrol" in client.blocker.message


async def rotate(deployment, operator):
    """What the operator does: one command, and the federator is started with the file that it has written."""
    done = await operator("operator", "rotate-key")
    assert done.returncode == 0, done.stderr
    assert "federator.json" in done.stdout
    assert await deployment.exit_code() == 2
    assert "has replaced the key" in deployment.said()
    deployment.start_federator(1_000, *ONE, **LONG)


async def test_a_device_that_was_off_during_two_rotations_comes_back(deployment, operator, tmp_path):
    """With the file that it was enrolled with; one that stays on goes on, and one is enrolled by the newest key."""
    folder, store = tmp_path / "operator", tmp_path / "device.sqlite"
    keys = [read_enrolment_key(folder).public]
    deployment.start_federator(1_000, *ONE, **LONG)
    await deployment.serves()
    async with oracle_device(deployment.devices[0], store) as off:
        newest = await contribute_once(off, 0)
    async with oracle_device(deployment.devices[1], tmp_path / "stays.sqlite") as stays:
        newest = await contribute_once(stays, newest)
        for _ in range(2):
            await rotate(deployment, operator)
            keys.append(read_enrolment_key(folder).public)
            newest = await contribute_once(stays, newest)
        enrolled = await operator("device", "enrol", "new", "--out", tmp_path / "new.json")
        assert enrolled.returncode == 0, enrolled.stderr
        async with oracle_device(read_credentials(tmp_path / "new.json", "device"), tmp_path / "new.sqlite") as new:
            newest = await contribute_once(new, newest)
        async with oracle_device(deployment.devices[0], store) as off:
            newest = await contribute_once(off, newest)
        # Orders and the roster of the newest key are obeyed, by who was enrolled with the first one, too.
        revoked = await operator("device", "revoke", client_name(0))
        assert revoked.returncode == 0, revoked.stderr
        newest = await contribute_once(stays, newest)
    assert len(set(keys)) == 3
    rows = [(row.kind, str(row.outcome)) for row in await list_orders(deployment.database, FEDERATION)]
    assert rows == [("rotate_enrolment_key", "obeyed")] * 2 + [("revoke_client", "obeyed")]
    assert [path.name for path in folder.glob("*.key")] == ["enrolment.key"]


async def test_who_has_the_former_key_is_believed_by_nobody(deployment, operator, tmp_path):
    """Neither what they enrol, order or revoke, nor what they tell devices; nor is a federator with the former file."""
    folder, access = tmp_path / "operator", BrokerAccess(broker_url=deployment.broker_url)
    stolen, old_file = read_enrolment_key(folder), tmp_path / "old.json"
    shutil.copy(folder / "federator.json", old_file)
    federator = read_credentials(old_file, "federator")
    deployment.start_federator(1_000, *ONE, **LONG)
    await deployment.serves()
    store = tmp_path / "device.sqlite"
    async with oracle_device(deployment.devices[0], store) as client:
        newest = await contribute_once(client, 0)
        await rotate(deployment, operator)
        newest = await contribute_once(client, newest)
        thief = SigningKey.generate()
        revoked = [Revocation(client_id=client_name(0), void_below=1_000)]
        roster = Roster(federation=FEDERATION, version=999, through=0, revoked=revoked, salt=bytes(32), forgotten=[])
        statement = FederatorKey(
            federation=FEDERATION, sequence=9, old_key=federator.federator_public_key, new_key=thief.public
        )
        order = QuarantineClient(federation=FEDERATION, client_id=client_name(0), reason="forged")
        link = issue_link(stolen, FEDERATION, 1, thief.public)
        for topic, payload in (
            (TOPICS.roster, issue_roster(stolen, roster)),
            (TOPICS.federator_key, issue_federator_key(stolen, statement)),
            (TOPICS.operator_key, issue_succession(thief, FEDERATION, [link], [])),
            (TOPICS.operator, issue_order(stolen, order, 2).payload),
        ):
            await asyncio.to_thread(publish_once, access, "thief", topic, payload)
        newest = await contribute_once(client, newest)
        forged = device_identity(stolen, federator.federator_public_key, FEDERATION, "stranger", 900, access)
        async with oracle_device(forged, tmp_path / "forged.sqlite") as stranger:
            await until(lambda: refuses(stranger), "a stranger is let in")

    async def noted():
        return {"order_refused"} <= {event.kind for event in await list_events(deployment.database, FEDERATION)}

    await until(noted, "no refusal is noted")
    assert [row.kind for row in await list_orders(deployment.database, FEDERATION)] == ["rotate_enrolment_key"]
    await deployment.kill_federator()
    shutil.copy(old_file, folder / "federator.json")
    deployment.start_federator(1_000, *ONE, **LONG)
    assert await deployment.exit_code() == 2
