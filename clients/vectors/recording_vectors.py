"""Vectors of recording: what a `SearchRanker` keeps of lists and their clicks."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from foltr.core.errors import DataError
from foltr.core.learning.gate import Gate, Source
from foltr.edge_client.search_ranker import SearchRanker
from foltr.edge_client.serp import Serp
from foltr.edge_client.store.bounds import PendingUpdate
from foltr.edge_client.store.store import DeviceStore
from foltr.testing import FakeFederation

N_FEATURES = 2
CREDITS_SINCE = 1
"""The oldest model whose lists have credits here."""
_SOURCES = (Source.BASE, Source.INTERLEAVED, Source.MODEL, Source.INTERLEAVED)
_N_LISTS = 60


def recordings(told: Callable[[Gate], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what happens to one device, and what it has afterwards.

    A list is shown, clicks are recorded by an id, an update is made of all that waits, or its receipt comes with a
    watermark. Clicks that are refused, or lost because an update has their list, change nothing.

    Args:
        told: returns a gate and all that it says.
    """
    rng = np.random.default_rng(39)
    steps: list[dict[str, Any]] = []
    with FakeFederation(N_FEATURES) as federation, _joined(federation) as ranker:
        for step in _steps(rng):
            refused = lost = False
            try:
                lost = not _take(ranker, step)
            except DataError:
                refused = True
            clicks = [
                {"id": each.id, "clicks": each.clicks.tolist()} for each in ranker.store.waiting_interactions(100)
            ]
            found = {"waiting": clicks, "earned": _earned(ranker.store), "gate": told(ranker.gate)}
            steps.append({**step, "refused": refused, "lost": lost, **found})
    return steps


@contextmanager
def _joined(federation: FakeFederation) -> Iterator[SearchRanker]:
    credentials = federation.credentials("device-7")
    with SearchRanker(credentials, store=":memory:", n_features=N_FEATURES) as ranker:
        while not ranker.has_joined:  # its answer must not come in the middle
            time.sleep(0.01)
        yield ranker


def _steps(rng: np.random.Generator) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = [{"watermark": 0}]
    shown: list[str] = []
    for number in range(_N_LISTS):
        serp_id = f"list-{number}"
        shown.append(serp_id)
        steps.append({"show": _list(serp_id, number, rng)})
        # The newest list, and some of those before, in any order, also again.
        for clicked in (serp_id, *rng.choice(shown, int(rng.integers(0, 4)))):
            n_clicks = int(rng.integers(0, 3))
            steps.append({"record": str(clicked), "clicked": rng.choice(4, n_clicks, replace=False).tolist()})
        if number % 15 == 9:
            steps.append({"update": True})
        if number % 15 == 11:
            steps.append({"watermark": "through"})
    return [
        *steps,
        {"record": f"list-{_N_LISTS - 1}", "clicked": [4]},
        {"record": "of another device", "clicked": [0]},
        {"show": {**_list("wide", 0, rng), "n_features": N_FEATURES + 1}},
        {"record": "wide", "clicked": [0]},
        {"watermark": 0},
        {"record": f"list-{_N_LISTS - 1}", "clicked": [0, 1, 2, 3]},
    ]


def _earned(store: DeviceStore) -> list[dict[str, float]]:
    """Return the rewards of the lists that wait and whose base order is known."""
    ids = store.waiting_ids(100)
    earned = store.earned(ids[0], ids[-1], CREDITS_SINCE) if ids else []
    return [asdict(each) for each in earned]


def _list(serp_id: str, number: int, rng: np.random.Generator) -> dict[str, Any]:
    source = _SOURCES[number % 4]
    credit = rng.choice([-1, 0, 1, 1, 1], 4).tolist() if source is Source.INTERLEAVED else None
    positions = rng.permutation(6)[:4].tolist() if number % 7 else None  # an earlier version knew none
    shown = {"serp_id": serp_id, "source": str(source), "to_credit": credit, "n_features": N_FEATURES}
    return {**shown, "model_version": number // 20, "base_positions": positions}


def _take(ranker: SearchRanker, step: dict[str, Any]) -> bool:
    """Return false if clicks are lost."""
    store = ranker.store
    if "show" in step:
        shown = step["show"]
        store.recent.remember(
            Serp(
                shown["serp_id"],
                np.arange(4),
                shown["model_version"],
                np.full((4, shown["n_features"]), 0.5, np.float32),
                np.zeros(6),
                0.0,
                source=Source(shown["source"]),
                to_credit=None if shown["to_credit"] is None else np.array(shown["to_credit"], np.int8),
                base_positions=None if shown["base_positions"] is None else np.array(shown["base_positions"]),
            )
        )
    elif "record" in step:
        return ranker.record_clicks(step["record"], step["clicked"])
    elif "update" in step:
        ids = store.waiting_ids(100)
        store.put_update(PendingUpdate("u" * 32, 1, store.watermark() or 0, ids[-1], b"-"), ids)
    else:
        pending = store.pending_update()
        through = 0 if pending is None else pending.through
        store.settle(through if step["watermark"] == "through" else step["watermark"])
    return True
