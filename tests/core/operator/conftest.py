"""An operator's folder."""

from pathlib import Path

import pytest

from foltr.core.operator.credentials import BrokerAccess
from foltr.core.operator.folder import create_authority


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    broker = BrokerAccess(broker_url="mqtt://127.0.0.1:1883")
    with create_authority(tmp_path / "operator", "mail", federator=broker, operator=broker):
        return tmp_path / "operator"
