"""What a list earned, there and in the base order, and the means over lists."""

import numpy as np

from foltr.core.learning.rewards import ListRewards, base_order_reward, first_click_reward, mean_of_lists


def test_a_list_earns_by_its_first_click():
    """And in the base order by the clicked document that is first there, which may be another one."""
    for clicked, reward, base_reward in [([], 0, 0), ([0], 1, 1 / 4), ([1, 2], 1 / 2, 1), ([2], 1 / 3, 1)]:
        clicks = np.zeros(3, np.bool_)
        clicks[clicked] = True
        assert first_click_reward(clicks) == reward, (clicked, reward, base_reward)
        assert base_order_reward(np.array([3, 9, 0]), clicks) == base_reward, (clicked, reward, base_reward)


def test_the_means_are_over_all_lists():
    """However sums are rounded no mean exceeds the share of clicked lists: such an update would be refused."""
    lists = [ListRewards(1.0, 0.25), ListRewards(0.5, 1.0), ListRewards(0.0, 0.0), ListRewards(0.0, 0.0)]
    assert mean_of_lists(lists) == (0.5, 1.5 / 4, 1.25 / 4)
    assert first_click_reward(np.zeros(0, np.bool_)) == 0.0
    assert base_order_reward(np.zeros(0, np.int64), np.zeros(0, np.bool_)) == 0.0
    rng = np.random.default_rng(3)
    for _ in range(200):
        lists = [
            ListRewards(1.0 / rank, 1.0 / other) for rank, other in rng.integers(1, 4, (int(rng.integers(1, 60)), 2))
        ]
        clicked, reward, base_reward = mean_of_lists(lists)
        assert max(reward, base_reward) <= clicked <= 1.0
    assert mean_of_lists([ListRewards(1.0, 1.0)] * 7) == (1.0, 1.0, 1.0)
