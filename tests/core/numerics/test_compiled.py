import fcntl
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from support.completed_process import completed
from support.waiting import PATIENCE_S

from foltr.core.learning import plackett_luce
from foltr.core.numerics import compiled as compiled_module
from foltr.core.numerics.compiled import COMPILED

needs_numba = pytest.mark.skipif(not COMPILED, reason="numba is not installed or switched off")

CHAIN = textwrap.dedent("""
    import sys
    import numpy as np
    from foltr.core.evaluation.metrics import ndcg_at_k
    from foltr.core.learning.pdgd import pdgd_step
    from foltr.core.learning.neural import init_neural, neural_score
    from foltr.core.learning.neural_pdgd import neural_pdgd_step
    from foltr.core.learning.linear import sample_plackett_luce, score
    assert "numba" not in sys.modules, "importing a learner imported numba"
    rng = np.random.default_rng(3)
    features = rng.random((40, 12), dtype=np.float32)
    weights = rng.normal(size=12)
    for _ in range(20):
        ranking = sample_plackett_luce(score(weights, features), 10, rng)
        weights = pdgd_step(weights, features, ranking, rng.random(10) < 0.3, 0.1)
    units = init_neural(12, 5, rng).astype(np.float64)
    for _ in range(20):
        ranking = sample_plackett_luce(neural_score(units, features, 5), 10, rng)
        units = neural_pdgd_step(units, features, ranking, rng.random(10) < 0.3, 0.1)
    relevance = rng.integers(0, 5, 40)
    print(*(repr(float(x)) for x in [*weights, *units]), repr(ndcg_at_k(relevance[ranking], 10, relevance)))
""")


def run_chain(disable_jit: str) -> np.ndarray:
    output = completed(
        [sys.executable, "-c", CHAIN], env=os.environ | {"NUMBA_DISABLE_JIT": disable_jit}, check=True
    ).stdout
    return np.array([float(x) for x in output.split()])


@needs_numba
def test_compiled_and_plain_runs_agree_and_neither_imports_numba_early() -> None:
    """The same weights but for the rounding of float32 sums, which BLAS libraries take in different orders."""
    np.testing.assert_allclose(run_chain("0"), run_chain("1"), rtol=1e-5, atol=1e-7)


CALLER = """
from foltr.core.numerics.compiled import compiled
from callee import LIMIT, doubled

@compiled
def quadrupled(x):
    return min(doubled(doubled(x)), LIMIT)

print(quadrupled(1.0), quadrupled.dispatcher().stats.cache_hits[next(iter(quadrupled.dispatcher().stats.cache_hits))]
      if quadrupled.dispatcher().stats.cache_hits else 0)
"""

CALLEE = """
from foltr.core.numerics.compiled import compiled

LIMIT = {limit}

@compiled
def doubled(x):
    return {factor} * x
"""


@needs_numba
def test_a_change_in_another_module_discards_the_machine_code(tmp_path: Path) -> None:
    """Kernels call kernels of other modules; the cached caller is used until the callee or a constant changes."""
    (tmp_path / "caller.py").write_text(CALLER)

    def run(factor: float, limit: float) -> list[float]:
        (tmp_path / "callee.py").write_text(CALLEE.format(factor=factor, limit=limit))
        command = [sys.executable, "-B", str(tmp_path / "caller.py")]
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        done = completed(command, env=environment, check=True)
        return [float(word) for word in done.stdout.split()]

    assert run(2.0, 1e9) == [4.0, 0]
    assert run(2.0, 1e9) == [4.0, 1]
    assert run(3.0, 1e9) == [9.0, 0]
    assert run(3.0, 5.0) == [5.0, 0]


UNUSABLE = """
import sys
from foltr.core.numerics.compiled import compiled

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name == "numba":
            raise ImportError("Numba needs another NumPy")

sys.meta_path.insert(0, Refuses())

@compiled
def doubled(x):
    return 2.0 * x

@compiled
def squared(x):
    return x * x

print(doubled(3.0), doubled(4.0), squared(5.0))
"""


@needs_numba
def test_where_numba_cannot_be_imported_plain_functions_are_called_and_that_is_said_once() -> None:
    """A device whose NumPy is too new for its numba goes on ranking and learning."""
    done = completed([sys.executable, "-c", UNUSABLE], check=True)
    said = done.stdout + done.stderr
    assert "6.0 8.0 25.0" in said
    assert said.count("numba_unusable") == 1
    assert "another NumPy" in said


TOGETHER = """
import sys, time
from pathlib import Path
import numba
from callee import doubled
from foltr.core.numerics import kernel_cache

kernel_cache._LONGEST_WAIT_S = 600.0  # the other one may be slow
Path(sys.argv[1]).touch()
while len(list(Path(sys.argv[1]).parent.glob("ready-*"))) < 2:
    time.sleep(0.01)
doubled(1.0)
print(sum(doubled.dispatcher().stats.cache_misses.values()))
"""


@needs_numba
def test_processes_that_start_together_compile_a_kernel_once(tmp_path: Path) -> None:
    (tmp_path / "callee.py").write_text(CALLEE.format(factor=2.0, limit=1e9))
    (tmp_path / "together.py").write_text(TOGETHER)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-B", str(tmp_path / "together.py")]
    processes = [
        subprocess.Popen([*command, str(tmp_path / f"ready-{i}")], env=environment, stdout=subprocess.PIPE, text=True)
        for i in range(2)
    ]
    n_compiled = [int(process.communicate(timeout=PATIENCE_S)[0]) for process in processes]
    assert sum(n_compiled) == 1
    assert [process.returncode for process in processes] == [0, 0]
    (lock,) = (tmp_path / "cache").rglob("*.lock")
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@needs_numba
def test_without_a_writable_cache_kernels_still_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    from foltr.core.numerics import kernel_cache

    def refuse(*_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(kernel_cache, "KernelCache", refuse)
    kernel = compiled_module.compiled(getattr(plackett_luce.log_add_exp, "py_func"))  # noqa: B009
    assert kernel(0.0, 0.0) == pytest.approx(np.log(2.0))


def test_without_numba_a_kernel_is_the_function_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device nothing is wrapped, and a loop is never called."""
    monkeypatch.setattr(compiled_module, "COMPILED", False)

    def kernel(x: float) -> float:
        return x

    assert compiled_module.compiled(kernel) is kernel
    assert compiled_module.compiled_instead_of(kernel)(lambda x: -x) is kernel


@needs_numba
def test_a_thread_may_call_the_plain_functions() -> None:
    """As if numba were not there; other threads go on with machine code, and so does this one afterwards."""
    calls = []

    def noted(x: float) -> float:
        calls.append(x)
        return x

    kernel = compiled_module.compiled(noted)
    with compiled_module.plain_functions(), compiled_module.plain_functions():
        assert kernel(1.0) == 1.0
    with ThreadPoolExecutor(1) as pool, compiled_module.plain_functions():
        assert kernel(2.0) == 2.0
        assert pool.submit(plackett_luce.log_add_exp, 0.0, 0.0).result() == pytest.approx(np.log(2.0))
    assert calls == [1.0, 2.0]
    assert getattr(plackett_luce.log_add_exp, "dispatcher")().signatures  # noqa: B009


@needs_numba
def test_a_loop_may_stand_for_a_function_on_arrays() -> None:
    """Which is what is called under `plain_functions`, and wherever numba is not."""

    def doubled(x: float) -> float:
        return x + x

    @compiled_module.compiled_instead_of(doubled)
    def by_loop(x: float) -> float:
        for _ in range(1):
            x *= 2.0
        return x + 0.5  # differs, to tell which was called

    assert by_loop(1.0) == 2.5
    with compiled_module.plain_functions():
        assert by_loop(1.0) == 2.0
