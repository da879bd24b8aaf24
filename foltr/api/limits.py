"""Limits per caller: the rate of requests and the size of a request body."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

# Above this many callers the one seen longest ago is forgotten. It starts again with a full bucket.
_MOST_ASKERS = 10_000


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float


class RateLimiter:
    """A token bucket for each caller.

    Args:
        rate_per_s: sustained requests per second for one caller.
        burst: requests that one caller may send at once.
        clock: monotonic time in seconds.
    """

    def __init__(self, rate_per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, asker: str) -> float:
        """Count a request. Return 0.0 if it may proceed, else the seconds until one may."""
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


def rate_limit_key(address: str) -> str:
    """Return the rate-limit key of an address. An IPv6 /64 network is one caller, since one host can use all of it.

    Everything that is not an address, such as a forged header, shares one key.
    """
    try:
        found = ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or ip_network((int(found), 64), strict=False))
    return str(found)
