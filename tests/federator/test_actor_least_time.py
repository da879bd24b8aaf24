"""The least time of a round, which it lasts even if all who may contribute have."""

from foltr.broker.link import InboundMessage
from foltr.core.protocol.orders import RevokeClient
from foltr.core.protocol.states import Pacing
from foltr.core.protocol.topics import Topics
from foltr.federator.pace import PacePolicy
from foltr.federator.round import RoundPolicy
from foltr.storage.queries import list_contributions, list_rounds

TOPICS = Topics("mail")
TWO = RoundPolicy(1, 2, 10.0, 60.0)


async def states(served):
    return [(row.state, row.n_updates) for row in await list_rounds(served.db, "mail")]


async def test_a_full_round_lasts_its_least_time_also_after_a_restart(serve, unsigned, restarted):
    """Then it ends with what it has; a device that comes too late hears so at once, and takes part in the next."""
    served = await serve(TWO)
    devices = [unsigned(name) for name in "abc"]
    await served.join(devices)
    for device in devices:
        served.update(device)
    await served.turn()
    assert served.receipts.codes() == {"accepted": 2, "late": 1}
    assert [row.state for row in await list_rounds(served.db, "mail")] == ["collecting"]
    served = await restarted(served)
    served.clock.at += 9.0
    await served.turn()
    assert [row.state for row in await list_rounds(served.db, "mail")] == ["collecting"]
    served.clock.at += 1.5
    await served.turn()
    assert await states(served) == [("completed", 2), ("collecting", 0)]
    served.update(devices[2], 2, 1)
    await served.turn()
    assert served.receipts.codes() == {"accepted": 1}


async def test_what_a_full_buffer_has_no_room_for_is_sent_again(serve, unsigned):
    """The device keeps its update, and the same bytes count in the next round."""
    served = await serve(RoundPolicy(2, 2, 10.0, 60.0, pacing=Pacing.BUFFERED, staleness_limit=1))
    devices = [unsigned(name) for name in "abc"]
    await served.join(devices)
    for device in devices:
        served.update(device, update_id=f"{ord(device.client_id):032x}")
    await served.turn()
    assert served.receipts.codes() == {"accepted": 2, "busy": 1}
    served.clock.at += 10.5
    await served.turn()
    served.update(devices[2], update_id=f"{ord('c'):032x}")
    await served.turn()
    assert served.receipts.codes() == {"accepted": 3, "busy": 1}
    assert [row.state for row in await list_rounds(served.db, "mail")] == ["completed", "collecting"]


async def test_a_place_that_a_revoked_client_leaves_is_free_again(serve, operator):
    """While the round waits: who leaves is in no model, and another may come in its place."""
    served = await serve(TWO, enrolment_key=operator.key.public)
    devices = {name: operator.enrol(name) for name in "abc"}
    await served.join(devices.values())
    for name in "ab":
        served.update(devices[name])
    await served.turn()
    revocation = RevokeClient(federation="mail", client_id="b", void_below=99)
    served.actor.receive(InboundMessage(TOPICS.operator, operator.says(revocation, 1).payload, retained=False))
    await served.turn()
    served.update(devices["c"])
    await served.turn()
    served.clock.at += 10.5
    await served.turn()
    counted = [row.client_id for row in await list_contributions(served.db, "mail") if row.round_state == "completed"]
    assert sorted(counted) == ["a", "c"]


async def test_a_round_with_a_target_lasts_its_least_time_too(serve, unsigned):
    """Its quorum ends it only at the deadline, its target after the least time."""
    served = await serve(TWO, pace=PacePolicy(2))
    devices = [unsigned(name) for name in "ab"]
    await served.join(devices)
    served.update(devices[0])
    await served.turn()
    served.clock.at += 30.0
    await served.turn()
    assert [row.state for row in await list_rounds(served.db, "mail")] == ["collecting"]
    served.update(devices[1])
    await served.turn()
    assert await states(served) == [("completed", 2), ("collecting", 0)]
    for device in devices:
        served.update(device, 2, 1)
    await served.turn()
    assert [row.state for row in await list_rounds(served.db, "mail")] == ["completed", "collecting"]
    served.clock.at += 10.5
    await served.turn()
    assert (await states(served))[:2] == [("completed", 2)] * 2
