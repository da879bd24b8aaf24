"""What the adaptive rule remembers, where it meets restarts, erasures and rounds that are taken back."""

from pathlib import Path

import numpy as np
import pytest

from foltr.core.aggregation.client_records import ClientRecords
from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.membership import Forget
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.updates import DenseDelta
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.client_rows import NAMING_TABLES
from foltr.storage.erasure.erasures import list_erasures, note_told
from foltr.storage.federations import get_federation
from foltr.storage.models import latest_model
from foltr.storage.queries import list_rounds

N_FEATURES = 4
ADAPTIVE = RoundPolicy(4, 5, 0.0, 60.0, rule=read_rule("adaptive"))
NAMES = ("alice-of-the-north", "bob", "carol", "dave", "erin")
N_ROUNDS = 3


def body(number: int, place: int) -> DenseDelta:
    """What the client at a place sends in a round: nearly what the others do."""
    values = np.full(N_FEATURES, 1.0) + 0.1 * np.sin(np.arange(N_FEATURES) + 7.0 * number + place)
    return DenseDelta(dim=N_FEATURES, values=pack_vector(values.astype(np.float32)))


async def play(served, devices, number: int, base: int) -> None:
    for place, device in enumerate(devices):
        served.update(device, number, base, body=body(number, place))
    await served.turn()


async def remembered(served) -> ClientRecords:
    model = await latest_model(served.db, "mail")
    return ClientRecords.from_bytes(model.defence_state, N_FEATURES)


@pytest.fixture
async def judging(serve, unsigned):
    """Five devices and three rounds that the rule has judged them by."""
    served = await serve(ADAPTIVE, n_features=N_FEATURES)
    devices = [unsigned(name) for name in NAMES]
    await served.join(devices)
    for number in range(1, N_ROUNDS + 1):
        await play(served, devices, number, number - 1)
    assert (await remembered(served)).client_ids == NAMES
    return served, devices


async def forget(served, device) -> None:
    served.receive(device, ClientTopic.FORGET, Forget(federation="mail", client_id=device.client_id))
    for _ in range(3):
        await served.turn()
        served.clock.at += 10.0
        await served.actor.eraser.wait_purged()


async def tell(served) -> None:
    """Let the device know, so that its row goes, and no byte of it stays."""
    epoch = (await get_federation(served.db, "mail")).writer_epoch
    (erasure,) = await list_erasures(served.db, "mail")
    await note_told(served.db, "mail", epoch, erasure.pseudonym)
    assert await served.db.purge(*NAMING_TABLES)


def named_in(folder: Path) -> int:
    """How often the name is in the database's files."""
    return sum(file.read_bytes().count(NAMES[0].encode()) for file in folder.glob("foltr.sqlite*"))


async def test_to_forget_a_client_leaves_its_name_in_no_other_row(judging, tmp_path: Path) -> None:
    """But its own row, and in no file once that is gone; the others are remembered as before."""
    served, devices = judging
    before = await remembered(served)
    await forget(served, devices[0])
    after = await remembered(served)
    assert after.client_ids == NAMES[1:]
    assert after.clients.tobytes() == before.for_clients(NAMES[1:]).tobytes()
    assert named_in(tmp_path) == 2  # its own row of clients, and the index of names: until its device was told
    await tell(served)
    assert named_in(tmp_path) == 0


@pytest.mark.parametrize("restarts", [False, True])
async def test_who_goes_on_after_an_erasure_knows_what_is_stored(serve, judging, restarts) -> None:
    """The federator that erased the client and one that starts again make the next model of the same memory."""
    served, devices = judging
    await forget(served, devices[0])
    expected = await remembered(served)
    again = await serve(ADAPTIVE, n_features=N_FEATURES) if restarts else served
    following = (await list_rounds(again.db, "mail"))[-1]
    await play(again, devices[1:], following.round, following.base_version)
    again.clock.at = served.clock.at + 100.0
    await again.turn()
    after = await remembered(again)
    assert after.client_ids == NAMES[1:]
    assert after.n_rounds == expected.n_rounds + 1
    assert after.clients["n_updates"].tolist() == (expected.clients["n_updates"] + 1).tolist()
