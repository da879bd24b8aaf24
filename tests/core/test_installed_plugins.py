"""What installed packages add is listed with its package; what cannot be imported is named, and hides nothing else."""

import pytest

from foltr.core.installed_plugins import also_installed, installed_plugins

GROUP = "foltr.metrics"


def install(below, package: str, code: str, *names: str) -> str:
    """Put a module into a folder, with what an installer writes about its package; return the folder."""
    folder, module = below / package, package.replace("-", "_")
    folder.mkdir()
    (folder / f"{module}.py").write_text(code)
    about = folder / f"{module}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    lines = [f"{name} = {module}:{name.replace('-', '_')}" for name in names]
    (about / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
    return str(folder)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    good = 'def early(*seen):\n    """Early hits."""\n'
    # The first on the path is the first found.
    monkeypatch.syspath_prepend(install(tmp_path, "c-other-one", "plain = 1\n", "plain", "gone"))
    monkeypatch.syspath_prepend(install(tmp_path, "b-late-one", "raise RuntimeError('no licence')\n", "early", "late"))
    monkeypatch.syspath_prepend(install(tmp_path, "a-good-one", good, "early", "ndcg"))


@pytest.mark.usefixtures("packages")
def test_a_broken_entry_point_is_named_and_the_others_are_listed() -> None:
    """Each with its package; a name that is taken is no second one."""
    found = {(one.package, one.name): one for one in installed_plugins(GROUP, ("ndcg",))}
    good = found.pop(("a-good-one", "early"))
    assert (good.error, good.meaning, good.thing.__name__) == (None, "Early hits.", "early")
    plain = found.pop(("c-other-one", "plain"))
    assert (plain.error, plain.meaning, plain.thing) == (None, "", 1)
    assert {place: one.error for place, one in found.items()} == {
        ("a-good-one", "ndcg"): "foltr has this name itself, and uses its own",
        ("b-late-one", "early"): "the package a-good-one has the same name, and is used",
        ("b-late-one", "late"): "RuntimeError: no licence",
        ("c-other-one", "gone"): "AttributeError: module 'c_other_one' has no attribute 'gone'",
    }
    assert all(one.thing is None for one in found.values())


@pytest.mark.usefixtures("packages")
def test_an_error_names_them_without_importing_them() -> None:
    """By package, except those that the message names anyway; nothing without any."""
    told = also_installed(GROUP, {"ndcg", "plain"})
    assert told == "; only simulated: early of a-good-one; early, late of b-late-one; gone of c-other-one"
    assert also_installed("foltr.nothing", ()) == ""
