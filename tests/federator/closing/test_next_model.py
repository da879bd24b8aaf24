"""The next model as a running federator has it, and as the next one will read it."""

import pytest

from foltr.core.aggregation.rule_spec import read_rule
from foltr.federator.round import RoundPolicy
from foltr.storage.models import latest_model


@pytest.mark.parametrize("rule", ["mean", "median", "adaptive"])
async def test_the_model_in_memory_is_the_stored_one(serve, unsigned, rule):
    """Whichever rule made it, with its memory: a restart changes nothing."""
    served = await serve(RoundPolicy(4, 4, 0.0, 60.0, rule=read_rule(rule)))
    devices = [unsigned(f"client-{i}") for i in range(4)]
    await served.join(devices)
    for number in (1, 2):
        for device in devices:
            served.update(device, number, number - 1)
        await served.turn()
        stored = await latest_model(served.db, "mail")
        assert served.actor.rounds.model == stored
        assert (stored.version, stored.round, stored.base_version) == (number, number, number - 1)
        assert (stored.defence_state is None) == (rule != "adaptive")
