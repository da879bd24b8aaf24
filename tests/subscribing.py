"""The client that does nothing but subscribe: the one that the benchmarks attack a broker with."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "subscriber", Path(__file__).parents[1] / "research/benchmarks" / "subscriber.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)
Subscriber, flood = _MODULE.Subscriber, _MODULE.flood
