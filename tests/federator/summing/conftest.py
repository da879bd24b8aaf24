"""Starts federations with secure sums."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.federator_without_network import Served
from support.helpers_by_hand import PlayedHelper, play
from support.secure_cohorts import SecureFederation
from support.secure_federation import CLIP_NORM, QUIET, SecureRounds

from foltr.core.protocol.trainings import PdgdTraining
from foltr.federator.round import RoundPolicy
from foltr.federator.secure_terms import SecureSettings


@pytest.fixture
def secure(serve, tmp_path) -> Iterator[Callable[..., Any]]:
    """Starts a federation with so many clients, all of whom have joined."""

    all_helpers: list[PlayedHelper] = []

    async def start(n_clients: int = 3, *, secure: dict[str, Any] | None = None, **changed: Any) -> SecureRounds:
        rounds = {"min_clients": n_clients, "max_clients": n_clients, "max_time_s": 60.0} | changed.pop("rounds", {})
        plan = changed.pop("plan", {})
        settings: dict[str, Any] = {"n_min": 3, "n_max": 100, "n_interactions": 1} | QUIET | changed
        n_helpers = settings.pop("n_helpers", 2)
        federation = SecureFederation(n_helpers=n_helpers, **settings)

        async def start_actor() -> Served:
            training = PdgdTraining(min_interactions=1, max_interactions=1)
            keys = {"sealing_keys": (federation.federator_sealing_key,)}
            options = {"clip_norm": CLIP_NORM} | keys | (secure or {})
            return await serve(
                RoundPolicy(**rounds),
                n_features=federation.dim,
                key=federation.federator,
                training=training,
                enrolment_key=federation.operator.public,
                secure=SecureSettings(federation.policy, **options),
                **plan,
            )

        served = await start_actor()
        clients = federation.clients(n_clients)
        folder = tmp_path / f"helpers-{len(all_helpers)}"
        folder.mkdir()
        helpers = play(federation, folder)
        all_helpers.extend(helpers)
        started = SecureRounds(federation, start_actor, served, helpers, clients)
        await served.join([started.device(client) for client in clients])
        return started

    yield start
    for helper in all_helpers:
        helper.store.close()
