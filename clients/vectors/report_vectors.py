"""Vectors of reports: what a device in some states says of the application's order and the model's."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from foltr.core.learning.gate import Gate, Source, with_list
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.explorations import Exploration, InterleavingExploration, NoExploration, SwapsExploration
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.trainings import LinearRankerSpec
from foltr.edge_client.device_state import DeviceState, order_of_next
from foltr.edge_client.report import report_of
from foltr.edge_client.training.working_model import WorkingModel

_VERSION = 3
_SWAPS = SwapsExploration(probability=0.05)


def reports(told: Callable[[Gate], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return states of a device and its reports.

    Args:
        told: returns a gate and all that it says.
    """
    opened = _after(_after(Gate(), Source.BASE, 40, 1), Source.INTERLEAVED, 14, 1)
    by_all = replace(_after(Gate(), Source.BASE, 40, 1), is_open=True)
    gates = [
        Gate(),
        _after(Gate(), Source.INTERLEAVED, 4, 1),
        _after(Gate(), Source.INTERLEAVED, 14, -1),
        _after(_after(Gate(), Source.INTERLEAVED, 8, 1), Source.INTERLEAVED, 8, -1),
        opened,
        _after(opened, Source.MODEL, 8, 0),
    ]
    cases = [_case(told, gate, [1.0], _SWAPS, is_gated=True) for gate in gates]
    cases += [_case(told, opened, weights, _SWAPS, is_gated=True) for weights in (None, [0.0])]
    cases += [_case(told, Gate(), [0.0], _SWAPS, is_gated=True), _case(told, by_all, [1.0], _SWAPS, is_gated=True)]
    for exploration in (NoExploration(), InterleavingExploration()):
        cases += [_case(told, gate, [1.0], exploration, is_gated=True) for gate in (Gate(), gates[2], opened)]
    return [*cases, _case(told, Gate(), [1.0], _SWAPS, is_gated=False)]


def _after(gate: Gate, source: Source, n: int, credit: int) -> Gate:
    for number in range(n):
        clicks = np.array([number % 3 == 0, number % 5 != 0])
        gate = with_list(gate, source, clicks, np.full(2, credit, np.int8))
    return gate


def _case(
    told: Callable[[Gate], dict[str, Any]],
    gate: Gate,
    weights: list[float] | None,
    exploration: Exploration,
    *,
    is_gated: bool,
) -> dict[str, Any]:
    working_model = None if weights is None else _model(weights)
    version = None if working_model is None else _VERSION
    order = order_of_next(working_model, exploration, gate if is_gated else None)
    mixes = not isinstance(exploration, NoExploration)
    report = report_of(DeviceState("connected", order, version), gate, is_gated=is_gated, mixes=mixes)
    return {
        "gate": told(gate),
        "weights": weights,
        "model_version": version,
        "exploration": exploration.model_dump(),
        "is_gated": is_gated,
        "text": str(report),
        "says": [str(report.order.source), report.n_lists, report.n_clicked],
        "preference": report.preference,
        "reward_difference": report.reward_difference,
    }


def _model(weights: list[float]) -> WorkingModel:
    ranker, packed = LinearRankerSpec(n_features=len(weights)), pack_vector(weights)
    return WorkingModel(
        ModelAnnouncement(federation="mail", version=_VERSION, ranker=ranker, weights=packed), None, None
    )
