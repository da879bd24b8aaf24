"""What one who has read the source would try against the adaptive defence."""

import numpy as np
import pytest
from support.adaptive_rounds import ADAPTIVE, DIM, Federation, clipped, dropped, names_of

from foltr.core.aggregation.round_aggregation import aggregate_round


@pytest.mark.parametrize(("n", "n_attackers", "n_present"), [(10, 4, 5), (20, 8, 6)])
def test_a_round_full_of_attackers_does_not_turn_the_tables(n: int, n_attackers: int, n_present: int) -> None:
    """Clients are compared with all that are known, so those who happen to be few in a round are not the odd ones."""
    federation = Federation(n=n, n_attackers=n_attackers, attack=lambda rows, _: -rows).play(300, n_present)
    assert federation.ever_dropped() == federation.attackers
    assert dropped(federation.played[-1]) == federation.attackers & {
        fate.client_id for fate in federation.played[-1].report.fates
    }
    assert {finding.client_id for finding in federation.found("quarantine_proposed")} == federation.attackers
    assert all("each is of a suspected client" in message for message in federation.refused)


@pytest.mark.parametrize("n_attackers", [2, 4])
def test_long_steps_back_are_not_paid_for_by_many_short_ones_ahead(n_attackers: int) -> None:
    """Alignment counts length, so nobody buys a good record with updates that move nothing."""
    turn = [0]

    def pulses(rows, _):
        turn[0] += 1
        return (0.1 if turn[0] % 2 else -5.9) * rows

    federation = Federation(n_attackers=n_attackers, attack=pulses).play(40)
    assert dropped(federation.played[-1]) == federation.attackers == federation.ever_dropped()


def test_a_claim_of_many_interactions_buys_no_federation() -> None:
    """Two of ten can claim 35 % of the mean; a new name gets no more than two usual lengths."""
    federation = Federation(n_attackers=2, attack=lambda rows, _: -rows).play(1, weights=[1e6, 1e6] + [5.0] * 8)
    rows = Federation(n_attackers=2, attack=lambda rows, _: -rows).updates()
    honest = rows[2:].mean(axis=0)
    assert federation.played[-1].vector @ honest > 0.0

    long = Federation(n_attackers=2, attack=lambda rows, _: 20.0 * rows).play(1, weights=[1e6, 1e6] + [5.0] * 8)
    assert clipped(long.played[-1]) == long.attackers, "in the first round already"
    assert "times as long as usual" in long.played[-1].report.fates[0].reason
    federation = Federation(n=10).play(20)
    rows = federation.updates()
    rows[0] *= 4.0
    one = aggregate_round(ADAPTIVE, ["newcomer", *federation.names[1:]], rows, np.ones(10), federation.memory)
    assert clipped(one) == {"newcomer"}
    as_known = aggregate_round(ADAPTIVE, federation.names, rows, np.ones(10), federation.memory)
    assert clipped(as_known) == set()


@pytest.mark.parametrize("copier", ["aaa", "zzz"])
def test_nobody_is_framed_by_a_copy(copier: str) -> None:
    """A copier, before or after the copied by name: nobody is left out, and the two have the weight of one."""
    federation = Federation(n=9).play(20)
    for _ in range(30):
        rows = federation.updates()
        rows = np.vstack([rows, rows[3] * 1.01])
        one = aggregate_round(ADAPTIVE, [*federation.names, copier], rows, np.ones(10), federation.memory)
        federation.memory = one.memory
        assert dropped(one) == set()
    assert clipped(one) == {copier, federation.names[3]}


def test_suspects_are_not_counted_where_few_updates_arrive() -> None:
    """Length and suspicion last; a round of suspects only makes no model, and names the order that ends it."""
    federation = Federation(n_attackers=4, attack=lambda rows, _: -rows).play(60)
    names, rows = [federation.names[i] for i in (0, 5, 6)], federation.updates()[[0, 5, 6]]
    rows[1] *= 1e6
    one = aggregate_round(ADAPTIVE, names, rows, np.ones(3), federation.memory)
    assert dropped(one) == {names[0]}
    assert clipped(one) == {names[1]}
    assert np.linalg.norm(one.vector) < 3.0
    rows = federation.updates()[:3]
    with pytest.raises(Exception, match="foltr device quarantine"):
        aggregate_round(ADAPTIVE, names_of(3), rows, np.ones(3), federation.memory)
    for _ in range(50):  # without the suspects, who come back as suspected as they went
        rows = federation.updates()[4:]
        federation.memory = aggregate_round(ADAPTIVE, federation.names[4:], rows, np.ones(6), federation.memory).memory
    assert dropped(federation.play(1).played[-1]) == federation.attackers


def test_huge_updates_in_most_rounds_are_not_what_is_usual() -> None:
    """Usual is what most clients send, not most updates of a round: eight of twenty are shortened and left out."""
    federation = Federation(n=20, n_attackers=8, attack=lambda rows, rng: 1e6 * rng.permutation(rows, axis=1))
    federation.play(10)  # until most are known
    federation.played.clear()
    federation.play(150, n_present=6)
    assert max(float(np.linalg.norm(one.vector)) for one in federation.played) < 3.0
    assert federation.ever_dropped() == federation.attackers


def test_new_names_lead_nowhere():
    """Four of ten get new names every few rounds; two hundred names that stay away do not say what is usual."""
    for life in [1, 5, 9]:
        federation = Federation(n=10, signal=0.1).play(60)
        aim = np.eye(DIM)[0]
        moved = np.zeros(DIM)
        for number in range(200):
            rows = federation.updates()
            rows[:4] = 1.7 * aim + 0.5 * rows[:4]
            names = [*(f"new-{i}-{number // life}" for i in range(4)), *federation.names[4:]]
            order = np.argsort(names)
            sorted_names = [names[i] for i in order]
            one = aggregate_round(
                ADAPTIVE, sorted_names, rows[order].astype(np.float32), np.ones(10), federation.memory
            )
            federation.memory = one.memory
            moved += one.vector
        # The mean would go 0.68 usual lengths a round.
        assert moved @ aim < 0.1 * 200, life
        assert not dropped(one) & set(federation.names), life
    federation = Federation(n=10).play(60)
    for number in range(300):
        rows = federation.updates()
        rows[:4] *= 3.0
        names = [*(f"aaa-{i}-{number // 6}" for i in range(4)), *federation.names[4:]]
        one = aggregate_round(ADAPTIVE, names, rows.astype(np.float32), np.ones(10), federation.memory)
        federation.memory = one.memory
        assert not (dropped(one) | clipped(one)) & set(federation.names[4:])
