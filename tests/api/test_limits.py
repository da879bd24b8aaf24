"""What one asker may cost."""

import pytest

from foltr.api.limits import _MOST_ASKERS, RateLimiter, rate_limit_key


def test_who_asks_faster_than_its_rate_waits():
    """A burst of 3, then 2 a second: the next is due after half a second."""
    now = [0.0]
    limiter = RateLimiter(2.0, 3, lambda: now[0])
    assert [limiter.wait_s("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert limiter.wait_s("b") == 0.0
    now[0] = 0.25
    assert limiter.wait_s("a") == pytest.approx(0.25)
    now[0] = 0.5
    assert limiter.wait_s("a") == 0.0


def test_many_askers_take_bounded_memory():
    """Who was seen longest ago is forgotten, and begins anew."""
    limiter = RateLimiter(0.001, 1, lambda: 0.0)
    for i in range(_MOST_ASKERS + 1):
        limiter.wait_s(str(i))
    assert limiter.wait_s("0") == 0.0
    assert limiter.wait_s(str(_MOST_ASKERS)) > 0.0


def test_who_asks_from_an_address():
    """All addresses of an IPv6 network of 64 bits are one asker's, and what is no address takes no memory."""
    for address, asker in (
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("n\u00e4\u00e4" * 5000, ""),
    ):
        assert rate_limit_key(address) == asker, address
