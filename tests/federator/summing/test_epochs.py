"""Once a policy has no more epochs no device hears of a round under it."""

from structlog.testing import capture_logs
from support.secure_federation import QUIET, Heard


async def test_no_device_hears_of_a_round_after_the_policys_last_epoch(secure) -> None:
    """It is told why, and what to do next; a newer policy ends it."""
    with capture_logs() as logs:
        rounds = await secure(issued_at=0.0, epoch_s=1010)
        heard = Heard(rounds)
        assert heard.open == {1: True}
        rounds.served.clock.at += 70.0
        for _ in range(3):
            await rounds.served.turn()
    assert not heard.rounds[-1].open
    assert [log["event"] for log in logs if log["event"].startswith("policy_end")] == [
        "policy_ends_soon",
        "policy_ended",
    ]
    newer = rounds.federation.issue(version=2, n_min=3, n_max=100, n_interactions=1, **QUIET)
    rounds.publish(newer)
    await rounds.served.turn()
    for _ in range(3):
        rounds.served.clock.at += 70.0
        await rounds.served.turn()
    assert heard.rounds[-1].open
    assert heard.rounds[-1].secure.policy_hash == newer.hash
