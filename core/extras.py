"""Optional dependencies (extras), and how to add a missing one from the place foltr was installed from.

foltr is in no package index, so ``pip install 'foltr[...]'`` would find nothing, or something else.
"""

import json
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from typing import Final
from urllib.parse import unquote, urlsplit

MODULES: Final = {
    "secure": ("cryptography",),
    "cli": ("rich", "structlog", "typer"),
    "federator": ("sqlalchemy", "alembic", "aiosqlite", "jwt"),
    "postgres": ("asyncpg",),
    "simulation": ("iotcore", "numba", "scipy", "unearth"),
    # Before the other extra that has it too.
    "metrics": ("prometheus_client",),
    "dashboard": ("fastapi", "jinja2", "prometheus_client", "starlette", "uvicorn"),
}
"""What each extra brings, by import name."""


def extra_of(module: str) -> str | None:
    """Return the extra that brings a module or its package; None if no extra does."""
    top = module.partition(".")[0]
    return next((extra for extra, modules in MODULES.items() if top in modules), None)


def is_installed(extra: str) -> bool:
    """Return whether all modules of an extra are there; none is imported."""
    return all(find_spec(module) is not None for module in MODULES[extra])


def install_command(extra: str, package: str = "foltr") -> str:
    """Return the command that adds an extra to an installed package, be it of a checkout, a wheel or an index."""
    source, is_editable = _source(package)
    return f"pip install {'-e ' if is_editable else ''}'{source}[{extra}]'"


def _source(package: str) -> tuple[str, bool]:
    """Where a package was installed from (PEP 610), and whether as a checkout that may be edited."""
    try:
        direct = json.loads(distribution(package).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return package, False
    url = urlsplit(direct.get("url", ""))
    if url.scheme != "file":
        return package, False
    return unquote(url.path), bool(direct.get("dir_info", {}).get("editable"))
