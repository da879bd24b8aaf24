"""A broker of a test's own, on what `foltr broker config` writes; the test is skipped where none can be had."""

from pathlib import Path

import pytest
from support.servers import MissingError, ProvisionedMosquitto


def provisioned(folder: Path, access: str, federation: str = "fed") -> ProvisionedMosquitto:
    """A Mosquitto that is not started yet. ``access``: passwords or mtls."""
    try:
        return ProvisionedMosquitto(folder, access, federation)
    except MissingError as error:
        pytest.skip(f"Mosquitto: {error}")
