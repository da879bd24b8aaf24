"""Reads arrays from files that users name, without allocating more than the file holds."""

import io
import math
import zipfile
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

from foltr.core.user_files import FileKind, read_file

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_array_file(path: str | Path, kind: FileKind) -> npt.NDArray[Any]:
    """Read a .npy file; OSError as `read_file`, ValueError if it is not one."""
    return _array(read_file(path, kind))


def read_arrays_file(path: str | Path, kind: FileKind) -> dict[str, npt.NDArray[Any]]:
    """Read a .npz file; OSError as `read_file`, ValueError if it is invalid, or larger than its kind can be."""
    content = io.BytesIO(read_file(path, kind))
    try:
        with zipfile.ZipFile(content) as archive:
            if sum(member.file_size for member in archive.infolist()) > kind.most_bytes:
                raise ValueError(f"unpacked it is larger than {kind.text} can be ({kind.most_bytes:,} bytes)")
            return {name.removesuffix(".npy"): _array(archive.read(name)) for name in archive.namelist()}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise ValueError(str(error)) from error


def _array(content: bytes) -> npt.NDArray[Any]:
    file = io.BytesIO(content)
    read_header = _HEADERS.get(np.lib.format.read_magic(file))
    if read_header is None:
        raise ValueError("it is of an unknown version of the format")
    try:
        shape, _, dtype = read_header(file)
    except (SyntaxError, TokenError, RecursionError, MemoryError) as error:  # it is parsed like Python literals
        raise ValueError("its header cannot be read") from error
    # The size in a header is allocated before anything is read.
    if math.prod(shape) * dtype.itemsize > len(content) - file.tell():
        raise ValueError("its header promises more numbers than the file has")
    file.seek(0)
    found: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return found
