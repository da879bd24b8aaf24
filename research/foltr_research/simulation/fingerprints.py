"""Fingerprints of the program and of the data, on which a kept result depends besides its configuration.

Files of data are compared by size and modification time: reading gigabytes would cost more than some runs.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, cast

import foltr.core
import foltr_research
from foltr.core.data.sources import MSLR_SAMPLE
from foltr.core.numerics.compiled import COMPILED
from foltr.core.version import __version__
from foltr_research.simulation.config import GENERATED_DATA, SimulationConfig
from foltr_research.simulation.digests.live import outside_code
from foltr_research.simulation.digests.used_code import RUN, installed_sources, names_of
from foltr_research.simulation.digests.whole import digest_of_whole
from foltr_research.simulation.own_data import arrays_of, digest_of_arrays, takes_seed
from foltr_research.simulation.plugins import Kind, held, ids_of_plugins, named_plugins


class Program(NamedTuple):
    """The program of a run.

    Attributes:
        digest: of the versions of foltr and of libraries, and of the code that the run uses.
        outside: the names that are bound to code which is not in the source: plug-ins, and what was replaced.
    """

    digest: str
    outside: tuple[str, ...]


def programs_of(configs: Iterable[SimulationConfig]) -> list[Program]:
    """Return the program of each configuration's run. Source is read once per process."""
    configs = list(configs)
    used = [_used(frozenset(names_of(config.model_dump(mode="json")))) for config in configs]
    names = [named_plugins(config) for config in configs]
    plugins = whole_plugins(name for of_config in names for name in of_config)
    # What a configuration names from outside counts for its runs only.
    outside = outside_code(installed_sources().bindings(set().union(*used)), ids_of_plugins())
    found = []
    for of_config, modules in zip(names, used, strict=True):
        own = {name: code for name, code in outside.items() if name.rpartition(".")[0] in modules}
        named = {name: plugins[name] for name in of_config}
        # Code from elsewhere may call any of ours.
        everything = _all_code() if own or named else ""
        said = repr((versions(), sorted(modules.items()), sorted(own.items()), sorted(named.items()), everything))
        found.append(Program(hashlib.sha256(said.encode()).hexdigest()[:32], tuple(own)))
    return found


def whole_plugins(names: Iterable[str]) -> dict[str, str]:
    """Return a digest of each registered object with all that it consists of.

    Args:
        names: as of `foltr_research.simulation.plugins.named_plugins`.
    """
    found = {}
    for one in dict.fromkeys(names):
        kind, _, name = one.partition(" ")
        found[one] = digest_of_whole(held(cast("Kind", kind), name))
    return found


def versions() -> dict[str, str]:
    """Return the versions of foltr and of the libraries that compute."""
    libraries = ("numpy", "numba", "scipy") if COMPILED else ("numpy",)
    return {"foltr": __version__, **{name: version(name) for name in libraries}}


@functools.cache
def _used(names: frozenset[str]) -> dict[str, str]:
    return installed_sources().used([RUN], names)


@functools.cache
def _all_code() -> str:
    digest = hashlib.sha256()
    for package in (foltr.core, foltr_research):
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def is_made_here(data: str) -> bool:
    """Return whether data has no files here: the program generates it, or knows its SHA-256."""
    return data in (*GENERATED_DATA, MSLR_SAMPLE)


def data_fingerprint(data: str) -> str:
    """Return 32 hexadecimal digits of a folder's path and its files' sizes and times; empty without files.

    Own data without files counts by its code or values, see `foltr_research.simulation.plugins`, and by what a function
    returns, see `fingerprints_of_data`.

    Args:
        data: as `SimulationConfig.data`. For a folder that is not here, e.g. only on a cluster, the path alone counts.
    """
    if is_made_here(data) or held("data", data) is not None:
        return ""
    folder = Path(data).resolve()
    digest = hashlib.sha256(f"{folder}\n".encode())
    # No published layout is deeper than Fold1/train.txt.
    for path in sorted((*folder.glob("*.txt"), *folder.glob("*/*.txt"))):
        try:
            status = path.stat()
        except OSError:
            continue
        digest.update(f"{path.relative_to(folder).as_posix()} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


def fingerprints_of_data(configs: Mapping[str, SimulationConfig]) -> dict[str, str]:
    """Return a fingerprint of each configuration's data; of a function's or an object's, of what that returns."""
    found = dict[tuple[str, int | None], str]()
    of_configs = {}
    for key, config in configs.items():
        made = held("data", config.data)
        one = config.data, config.seed if callable(made) and takes_seed(made) else None
        if one not in found:
            found[one] = _made_fingerprint(made, one[1]) if callable(made) else data_fingerprint(config.data)
        of_configs[key] = found[one]
    return of_configs


def _made_fingerprint(made: Callable[..., object], seed: int | None) -> str:
    try:
        return digest_of_arrays(arrays_of(made() if seed is None else made(seed)))
    except Exception:  # noqa: BLE001 (a foreign function may raise anything, and the run says so)
        return ""
