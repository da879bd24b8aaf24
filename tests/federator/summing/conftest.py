"""Starts federations with secure sums."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.federator_without_network import Served
from support.helpers_by_hand import PlayedHelper, play
from support.secure_cohorts import SecureFederation
from support.secure_federation import CLIP_NORM, QUIET, SecureRounds

from foltr.core.protocol.policies import cohort_of
from foltr.core.protocol.trainings import PdgdTraining
from foltr.federator.round import RoundPolicy
from foltr.federator.secure_terms import SecureSettings


def drawn(n_clients: int, **settings: Any) -> SecureFederation:
    """A federation whose cohorts are of like size: a policy's hash, which is drawn, says who is in which."""
    while True:
        federation = SecureFederation(**settings)
        n, names = federation.policy.policy.cohorts, [f"device-{i}" for i in range(n_clients)]
        for number in range(1, 8):
            of_clients = Counter(cohort_of(federation.policy.hash, n, number, name) for name in names)
            if any(2 * n * of_clients[cohort] < n_clients for cohort in range(n)):
                break
        else:
            return federation


@pytest.fixture
def secure(serve, tmp_path) -> Iterator[Callable[..., Any]]:
    """Starts a federation with so many clients, all of whom have joined."""

    all_helpers: list[PlayedHelper] = []

    async def start(n_clients: int = 3, *, secure: dict[str, Any] | None = None, **changed: Any) -> SecureRounds:
        rounds = {"min_clients": n_clients, "max_clients": n_clients, "max_time_s": 60.0} | changed.pop("rounds", {})
        plan = changed.pop("plan", {})
        settings: dict[str, Any] = {"n_min": 3, "n_max": 100, "n_interactions": 1} | QUIET | changed
        federation = drawn(n_clients, **settings)

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
