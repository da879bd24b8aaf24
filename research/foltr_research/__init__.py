"""Experiments with foltr: the simulator, attacks, and the reproductions of published results.

``import foltr_research as fr`` has what a researcher needs: `simulate`, `sweep`, `replay`, `available`, which lists
what settings can name, and what plug-ins are made of.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foltr.core.evaluation.click_models import ClickModel
    from foltr.core.methods.spec import MethodSpec
    from foltr_research.attacks.registry import AttackedRound
    from foltr_research.door import replay, simulate, sweep
    from foltr_research.finished_runs import Curve, Result, Sweep
    from foltr_research.simulation.available import Available, available
    from foltr_research.simulation.counterfactual.click_models import click_model_of
    from foltr_research.simulation.logged_clicks.aol4foltr import AolLog, LogFormat, most_active_users
    from foltr_research.simulation.logged_clicks.logs import Lockstep, LoggedQuery
    from foltr_research.simulation.logged_clicks.results import Replay
    from foltr_research.simulation.logged_clicks.settings import RoundSettings
    from foltr_research.simulation.logged_clicks.synthetic_log import SyntheticLog
    from foltr_research.simulation.own_method import Method

__all__ = [
    "AolLog",
    "AttackedRound",
    "Available",
    "ClickModel",
    "Curve",
    "Lockstep",
    "LogFormat",
    "LoggedQuery",
    "Method",
    "MethodSpec",
    "Replay",
    "Result",
    "RoundSettings",
    "Sweep",
    "SyntheticLog",
    "available",
    "click_model_of",
    "most_active_users",
    "replay",
    "simulate",
    "sweep",
]

_DOOR = {
    "AolLog": "foltr_research.simulation.logged_clicks.aol4foltr",
    "AttackedRound": "foltr_research.attacks.registry",
    "Available": "foltr_research.simulation.available",
    "ClickModel": "foltr.core.evaluation.click_models",
    "Curve": "foltr_research.finished_runs",
    "Lockstep": "foltr_research.simulation.logged_clicks.logs",
    "LogFormat": "foltr_research.simulation.logged_clicks.aol4foltr",
    "LoggedQuery": "foltr_research.simulation.logged_clicks.logs",
    "Method": "foltr_research.simulation.own_method",
    "MethodSpec": "foltr.core.methods.spec",
    "Replay": "foltr_research.simulation.logged_clicks.results",
    "Result": "foltr_research.finished_runs",
    "RoundSettings": "foltr_research.simulation.logged_clicks.settings",
    "Sweep": "foltr_research.finished_runs",
    "SyntheticLog": "foltr_research.simulation.logged_clicks.synthetic_log",
    "available": "foltr_research.simulation.available",
    "click_model_of": "foltr_research.simulation.counterfactual.click_models",
    "most_active_users": "foltr_research.simulation.logged_clicks.aol4foltr",
    "replay": "foltr_research.door",
    "simulate": "foltr_research.door",
    "sweep": "foltr_research.door",
}


def __getattr__(name: str) -> object:
    if name not in _DOOR:
        raise AttributeError(f"module 'foltr_research' has no attribute {name!r}")
    return getattr(importlib.import_module(_DOOR[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
