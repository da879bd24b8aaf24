"""Arrays in files that users name."""

import io
import zipfile

import numpy as np
import pytest

from foltr.core.numerics.array_files import read_array_file, read_arrays_file
from foltr.core.user_files import FileKind


def header(shape: str, version: bytes = b"\x01\x00") -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text


def test_an_array_is_read_as_it_was_saved(tmp_path):
    for array in [np.arange(5, dtype=np.float32), np.zeros((2, 0)), np.asfortranarray(np.eye(3))]:
        np.save(tmp_path / "a.npy", array)
        np.savez_compressed(tmp_path / "a.npz", first=array, second=np.ones(2))
        alone = read_array_file(tmp_path / "a.npy", FileKind.DECLARATION)
        together = read_arrays_file(tmp_path / "a.npz", FileKind.SAMPLE)
        for found in (alone, together["first"]):
            assert (found.shape, found.dtype) == (array.shape, array.dtype), array
            assert np.array_equal(found, array), array
        assert set(together) == {"first", "second"}, array


def test_no_room_is_made_for_what_is_not_there(tmp_path):
    """An array of 80 TB by its header, one that was cut, and what is none: a ValueError, at once."""
    for content in [
        header("(9999999999999,)"),
        header("(2, 3)") + bytes(47),
        header("(1,)", b"\x09\x00"),
        header("[" * 60),
        header("(" * 60),
        b"",
        b"\x93NUMPY",
        b"not an array",
    ]:
        (tmp_path / "a.npy").write_bytes(content)
        with pytest.raises(ValueError, match=r"."):
            read_array_file(tmp_path / "a.npy", FileKind.DECLARATION)
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("a.npy", content)
        with pytest.raises(ValueError, match=r"."):
            read_arrays_file(tmp_path / "a.npz", FileKind.SAMPLE)


def test_an_archive_that_is_small_only_while_packed_is_refused(tmp_path):
    """Nor are pickles read."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as file:
        for _ in range(300):
            file.write(bytes(2**20))
    assert (tmp_path / "a.npz").stat().st_size < 2**20
    with pytest.raises(ValueError, match="unpacked it is larger than a sample of features can be"):
        read_arrays_file(tmp_path / "a.npz", FileKind.SAMPLE)
    file = io.BytesIO()
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "a.npy").write_bytes(file.getvalue())
    with pytest.raises(ValueError, match="allow_pickle"):
        read_array_file(tmp_path / "a.npy", FileKind.DECLARATION)
