"""What an install without an extra says: the command that adds it, to wherever this software came from."""

import json
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from foltr.core.extras import MODULES, extra_of, install_command, is_installed

PROJECT = Path(__file__).parents[2]


class Installed:
    def __init__(self, direct_url):
        self._direct_url = direct_url

    def read_text(self, name):
        assert name == "direct_url.json"
        return self._direct_url


def test_the_command_names_where_foltr_came_from(monkeypatch):
    """It is in no index, so its name alone would find nothing where it was installed from a file."""
    for direct_url, command in [
        ({"url": "file:///src/foltr", "dir_info": {"editable": True}}, "-e '/src/foltr[federator]'"),
        ({"url": "file:///my%20src/foltr", "dir_info": {}}, "'/my src/foltr[federator]'"),
        (
            {"url": "file:///foltr-0.1.0-py3-none-any.whl", "archive_info": {}},
            "'/foltr-0.1.0-py3-none-any.whl[federator]'",
        ),
        ({"url": "https://example.org/foltr-0.1.0-py3-none-any.whl"}, "'foltr[federator]'"),
        (None, "'foltr[federator]'"),
    ]:
        text = None if direct_url is None else json.dumps(direct_url)
        monkeypatch.setattr("foltr.core.extras.distribution", lambda _, text=text: Installed(text))
        assert install_command("federator") == f"pip install {command}"

    def nowhere(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("foltr.core.extras.distribution", nowhere)
    assert install_command("figures", "foltr-research") == "pip install 'foltr-research[figures]'"


def test_every_extra_of_a_command_is_known():
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert MODULES.keys() == extras.keys() - {"privacy"}
    imported = {"prometheus-client": "prometheus_client", "pyjwt": "jwt", "sqlalchemy[asyncio]": "sqlalchemy"}
    for extra, modules in MODULES.items():
        named = {one.split(">")[0] for one in extras[extra]} - {"foltr[cli]", "foltr[secure]"}
        assert {imported.get(name, name) for name in named} == set(modules)
    assert extra_of("sqlalchemy.ext.asyncio") == "federator"
    assert extra_of("asyncpg") == "postgres"
    assert extra_of("numpy") is None


def test_an_extra_is_installed_if_all_of_it_is(monkeypatch):
    assert is_installed("cli")
    monkeypatch.setitem(sys.modules, "rich", None)
    assert not is_installed("cli")


def test_an_install_without_extras_brings_no_more_than_a_device_needs():
    """Twelve packages, of which NumPy is the largest: at most 75 MB before Python has compiled them."""
    wanted, needed = ["foltr"], set()
    while wanted:
        asked = [Requirement(one) for one in distribution(wanted.pop()).requires or ()]
        found = {canonicalize_name(one.name) for one in asked if not one.marker or one.marker.evaluate({"extra": ""})}
        wanted += found - needed
        needed |= found
    assert needed == {
        *("aiomqtt", "annotated-types", "cffi", "msgpack", "numpy", "paho-mqtt", "pycparser", "pydantic"),
        *("pydantic-core", "pynacl", "typing-extensions", "typing-inspection"),
    }
    files = (Path(file.locate()) for name in needed for file in distribution(name).files or ())
    assert sum(file.stat().st_size for file in files if file.suffix != ".pyc" and file.exists()) <= 75e6
