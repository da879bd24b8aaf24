"""A device seals its seeds to the keys of the epoch in which its round was opened, and to none after the last one."""

from structlog.testing import capture_logs
from support.device_under_policy import DeviceUnderPolicy
from support.secure_policies import HELPERS, policy

from foltr.core.protocol.codec import decode
from foltr.core.protocol.signed_tickets import ticket_name
from foltr.core.protocol.tickets import Ticket
from foltr.core.secure.sealing import SealingKey, seal_info

KEYS = {each.name: [SealingKey(bytes([16 * i + k + 1]) * 32) for k in range(3)] for i, each in enumerate(HELPERS, 1)}
SIGNED = policy(
    epoch_s=100,
    helpers=[each.model_copy(update={"epoch_keys": [key.public for key in KEYS[each.name]]}) for each in HELPERS],
)


def opens(update):
    """Of each seal of an update, which epochs' keys open it."""
    ticket = decode(update.body.ticket, Ticket)
    name = ticket_name(ticket)
    return [
        [epoch for epoch, key in enumerate(KEYS[helper]) if key.open(seal, seal_info(name, helper)) is not None]
        for helper, seal in zip(KEYS, ticket.seals, strict=True)
    ]


async def test_seeds_are_sealed_to_the_epoch_in_which_the_round_was_opened(tmp_path):
    """By the federator's clock, which the round announces; the device's own says nothing."""
    device = DeviceUnderPolicy(tmp_path / "store", SIGNED)
    device.see(*range(8))
    for number, opened_at, epoch in ((1, 999.0, 0), (2, 1150.0, 1), (3, 1299.0, 2)):
        device.announce(number, opened_at=opened_at)
        update = await device.update()
        assert opens(update) == [[epoch], [epoch]]
        device.answer(update)


async def test_after_the_last_epoch_nothing_is_sent_or_spent(tmp_path):
    """Also where a federator announces a round all the same."""
    device = DeviceUnderPolicy(tmp_path / "store", SIGNED)
    device.see(*range(8))
    with capture_logs() as logs:
        device.announce(1, opened_at=1300.0)
        assert await device.is_silent()
    (line,) = [line for line in logs if line["event"] == "participation_refused"]
    assert "policy 1 has ended" in line["cause"]
    assert device.store.spent().last == 0
