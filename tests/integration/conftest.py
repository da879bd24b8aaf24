"""Fixtures of tests with a whole federation: its deployment, and its operator."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from cli.commands import foltr_process
from integration.deployment import Deployment
from integration.whole import Whole, running
from support.prepared_processes import with_defaults
from support.servers import MosquittoServer
from support.waiting import PATIENCE_S

from foltr.core.failpoints import VARIABLE


@pytest.fixture
def n_clients(request: pytest.FixtureRequest) -> int:
    """How many devices are enrolled; a test may say another number."""
    return request.module.N_CLIENTS


@pytest.fixture
async def deployment(
    mosquitto_server: MosquittoServer, migrated_url: str, tmp_path: Path, n_clients: int
) -> AsyncIterator[Deployment]:
    """A federation that is set up; its federator is not started."""
    async with Deployment(tmp_path, mosquitto_server.url, migrated_url, n_clients) as opened:
        yield opened


@pytest.fixture
async def whole(mosquitto_server: MosquittoServer, tmp_path: Path) -> AsyncIterator[Whole]:
    """A federation with secure sums, whose processes are not started."""
    async with running(tmp_path, mosquitto_server.url) as made:
        yield made


@pytest.fixture
def patient_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices of this process send nothing again because the machine was slow; what an outage lost they do."""
    monkeypatch.setattr("foltr.edge_client.participation.FIRST_RESEND_S", PATIENCE_S / 4)


@pytest.fixture
def operator(tmp_path: Path) -> Callable[..., Awaitable["subprocess.CompletedProcess[str]"]]:
    """Gives commands as the operator does, in processes of their own."""

    async def command(*arguments: object, failpoints: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        folder = ("--operator", tmp_path / "operator")
        waits = {"timeout_s": PATIENCE_S}
        patient = with_defaults(
            {
                "foltr.operations.order_session._CONNECT_S": PATIENCE_S,
                "foltr.cli.operator.sending.send_order": waits,
                "foltr.cli.operator.sending.send_unanswered": waits,
            }
        )
        variables = {VARIABLE: failpoints, **patient, **variables}
        return await asyncio.to_thread(foltr_process, *arguments, *folder, cwd=tmp_path, **variables)

    return command
