"""Starts helpers."""

import contextlib

import pytest
from desks import Running
from secure_cohorts import SecureFederation


@pytest.fixture
def running(tmp_path):
    with contextlib.ExitStack() as stack:

        def start(n_helpers=1, **policy):
            """A federation, and those of its helpers that run."""
            federation = SecureFederation(2)
            helpers = [Running(tmp_path, name) for name in ("north", "south")[:n_helpers]]
            for helper in helpers:
                stack.callback(lambda helper=helper: helper.store.close())
            federation.helpers[:n_helpers] = [helper.pair for helper in helpers]
            federation.dim = policy.get("dim", 3)
            federation.policy = federation.issue(**policy)
            for helper in helpers:
                helper.start(federation)
            return federation, *helpers

        yield start
