"""``foltr doctor`` says whether the federator is there."""

import pytest
from cli.doctor.test_doctor import announcement, visit

from foltr.cli.doctor import checks_broker
from foltr.cli.doctor.checks import State, run
from foltr.cli.doctor.checks_broker import ANNOUNCED
from foltr.core.protocol.codec import encode
from foltr.core.protocol.heartbeat import FederatorStatus

NOW = 1_000_000.0


def status(age_s: float = 1.0, *, online: bool = True) -> FederatorStatus:
    return FederatorStatus(federation="mail", online=online, at=NOW - age_s, interval_s=30.0, software_version="1.2")


@pytest.fixture(autouse=True)
def still_clock(monkeypatch):
    monkeypatch.setattr(checks_broker.time, "time", lambda: NOW)


async def test_whether_the_federator_is_there():
    """A missing federator is a problem with a next step; one that stopped after its last round is not."""
    for heard, is_over, state, said in (
        (status(), False, State.OK, "it is running: foltr 1.2, its last heartbeat is from 1 s ago"),
        (status(online=False), False, State.PROBLEM, "the broker says that it is away"),
        (status(online=False), True, State.OK, "after its last round"),
        (status(600.0), False, State.WARNING, "it hangs or cannot reach its database, or the clocks differ"),
        (status(-60.0), False, State.WARNING, "this machine's clock is 60 s behind the federator's"),
        (None, False, State.WARNING, "the broker has no heartbeat of it"),
    ):
        round_ = announcement(3, NOW, open_=False).model_copy(update={"last": is_over})
        beats = {} if heard is None else {"federator_status": encode(heard)}
        (found,) = [
            one for one in await run(ANNOUNCED, visit(round=encode(round_), **beats)) if one.what == "federator"
        ]
        assert found.state == state, heard
        assert said in found.detail, heard
        assert ("foltr federator run" in found.detail) == (("away" in said and not is_over) or heard is None), heard
