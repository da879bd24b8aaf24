"""What one asker may cost: a rate of requests, a size of what is posted."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

# Above this many askers the one that was seen longest ago is forgotten: it begins with a full bucket again.
_MOST_ASKERS = 10_000


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float


class RateLimiter:
    """A token bucket for each asker.

    Args:
        rate_per_s: requests a second that one asker may go on with.
        burst: requests that it may make at once.
        clock: seconds, never going back.
    """

    def __init__(self, rate_per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, asker: str) -> float:
        """Count a request; 0.0 where it may go on, else after how many seconds one may."""
        now = self._clock()
        bucket = self._buckets.pop(asker, None) or _Bucket(float(self._burst), now)
        self._buckets[asker] = bucket
        if len(self._buckets) > _MOST_ASKERS:
            self._buckets.popitem(last=False)
        bucket.level = min(float(self._burst), bucket.level + (now - bucket.at) * self._rate_per_s)
        bucket.at = now
        if bucket.level < 1.0:
            return (1.0 - bucket.level) / self._rate_per_s
        bucket.level -= 1.0
        return 0.0


def asker_at(address: str) -> str:
    """Say who asks from an address. Whoever has one IPv6 address has all of its network of 64 bits: they are one asker.

    What is no address, such as a header of a peer may say, is one asker, too.
    """
    try:
        found = ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or ip_network((int(found), 64), strict=False))
    return str(found)
