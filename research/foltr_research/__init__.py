"""Experiments with foltr: the simulator, attacks, and the reproductions of published results.

``import foltr_research as fr`` has what a researcher needs: `simulate`, `sweep`, and what plug-ins are made of.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foltr.core.evaluation.click_models import ClickModel
    from foltr.core.methods.spec import MethodSpec
    from foltr_research.attacks.registry import AttackedRound
    from foltr_research.door import Curve, Result, Sweep, simulate, sweep
    from foltr_research.simulation.own_method import Method

__all__ = ["AttackedRound", "ClickModel", "Curve", "Method", "MethodSpec", "Result", "Sweep", "simulate", "sweep"]

_DOOR = {
    "AttackedRound": "foltr_research.attacks.registry",
    "ClickModel": "foltr.core.evaluation.click_models",
    "Curve": "foltr_research.door",
    "Method": "foltr_research.simulation.own_method",
    "MethodSpec": "foltr.core.methods.spec",
    "Result": "foltr_research.door",
    "Sweep": "foltr_research.door",
    "simulate": "foltr_research.door",
    "sweep": "foltr_research.door",
}


def __getattr__(name: str) -> object:
    if name not in _DOOR:
        raise AttributeError(f"module 'foltr_research' has no attribute {name!r}")
    return getattr(importlib.import_module(_DOOR[name]), name)
