"""Fingerprints of the data behind a name and of the program, which a kept result depends on besides its configuration.

Files are compared by size and modification time: reading gigabytes would cost more than some runs.
"""

import functools
import hashlib
from pathlib import Path

import foltr.core
import foltr_research
from foltr.core.data.sources import MSLR_SAMPLE
from foltr.core.version import __version__
from foltr_research.simulation.config import GENERATED_DATA
from foltr_research.simulation.plugins import held

# They do not affect results: one reads the configuration, the other makes it, and it is compared in full.
_NOT_NUMERICS = ("cli", "reproductions")


@functools.cache
def program_fingerprint() -> str:
    """Return foltr's version and a SHA-256 of the source files that affect runs, read once per process."""
    digest = hashlib.sha256()
    for root in (Path(foltr.core.__file__).parent, Path(foltr_research.__file__).parent):
        for path in sorted(root.rglob("*.py")):
            name = path.relative_to(root)
            if name.parts[0] not in _NOT_NUMERICS:
                content = path.read_bytes()
                digest.update(f"{name.as_posix()} {len(content)}\n".encode())
                digest.update(content)
    return f"{__version__} {digest.hexdigest()[:32]}"


def data_fingerprint(data: str) -> str:
    """Return 32 hexadecimal digits of a folder's path and its files' sizes and times; empty without files.

    Generated sets are determined by the program, the sample by the SHA-256 in it, and own data by its code or values
    (`foltr_research.simulation.plugins.fingerprints_of`).

    Args:
        data: as `SimulationConfig.data`. For a folder that is not here, e.g. only on a cluster, the path alone counts.
    """
    if data in (*GENERATED_DATA, MSLR_SAMPLE) or held("data", data) is not None:
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
