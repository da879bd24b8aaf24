"""An operator's folder, and writes to it that are interrupted."""

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

from foltr.core.operator.credentials import BrokerAccess
from foltr.core.operator.folder import create_authority


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    broker = BrokerAccess(broker_url="mqtt://127.0.0.1:1883")
    with create_authority(tmp_path / "operator", "mail", federator=broker, operator=broker):
        return tmp_path / "operator"


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Let these modules write so many files, and kill them at the next one."""

    @contextmanager
    def at(n_writes, *modules, name="write_secret"):
        write, left = getattr(modules[0], name), [n_writes]

        def killed(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            write(*arguments, **options)

        with monkeypatch.context() as patch:
            for module in modules:
                patch.setattr(module, name, killed)
            yield

    return at
