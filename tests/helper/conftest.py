"""Starts helpers."""

import contextlib
from dataclasses import replace

import pytest
from support.helper_desks import Running
from support.secure_cohorts import SecureFederation

from foltr.core.secure.sealing import SealingKey


@pytest.fixture
def running(tmp_path):
    with contextlib.ExitStack() as stack:

        def start(n_helpers=1, **policy):
            """A federation, and those of its helpers that run."""
            federation = SecureFederation(2)
            n_epochs = policy.pop("n_epochs", 0)
            helpers = [Running(tmp_path, name, n_epochs) for name in ("north", "south")[:n_helpers]]
            for helper in helpers:
                stack.callback(lambda helper=helper: helper.store.close())
            federation.helpers[:n_helpers] = [helper.pair for helper in helpers]
            for i, pair in enumerate(federation.helpers[n_helpers:], n_helpers):
                keys = tuple(SealingKey.generate() for _ in range(n_epochs))
                federation.helpers[i] = replace(pair, epoch_keys=keys)
            federation.dim = policy.get("dim", 3)
            federation.policy = federation.issue(**policy)
            for helper in helpers:
                helper.start(federation)
            return federation, *helpers

        yield start
