"""A folder finds what is called like the query, and what has its words."""

import pytest

from folder import Folder
from index import N_CANDIDATES


@pytest.fixture
def folder(tmp_path):
    """Many functions called ``copy``, three called ``copy_tree``, and a module of each name."""
    functions = "\n".join(f'class C{i}:\n    def copy(self):\n        """Copy number {i}."""' for i in range(60))
    (tmp_path / "copying.py").write_text(f'"""All about copy."""\n{functions}')
    (tmp_path / "copy.py").write_text('"""Duplicates."""')
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text('def copyTree():\n    """Whole trees, copy by copy."""')
    folder = Folder(tmp_path)
    yield folder
    folder.close()


def test_what_is_called_like_the_query_is_there_although_the_index_has_enough_without_it(folder):
    """And is no candidate besides; the last part of the name is enough if few have it, however it is written."""
    found = folder.find("copy")
    assert [document.name for document in found.exact] == ["copy"]
    assert len(found.candidates) >= N_CANDIDATES - 1
    assert found.exact[0] not in found.candidates
    assert found.features.shape[0] == len(found.bm25) == len(found.candidates)
    for query in ("copy_tree", "copy tree", "copyTree"):
        assert {document.name for document in folder.find(query).exact} == {"one.copyTree", "two.copyTree"}
    assert [document.name for document in folder.find("two.copyTree").exact] == ["two.copyTree"]
    nothing = folder.find("qwertz")
    assert (nothing.exact, nothing.candidates, len(nothing.features), len(nothing.bm25)) == ([], [], 0, 0)
