import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from foltr import compiled as compiled_module
from foltr import pdgd, rankers
from foltr.compiled import COMPILED

needs_numba = pytest.mark.skipif(not COMPILED, reason="numba is not installed or switched off")

CHAIN = textwrap.dedent("""
    import sys
    import numpy as np
    from foltr.metrics import ndcg_at_k
    from foltr.pdgd import pdgd_step
    from foltr.rankers import sample_plackett_luce, score
    assert "numba" not in sys.modules, "importing a learner imported numba"
    rng = np.random.default_rng(3)
    features = rng.random((40, 12), dtype=np.float32)
    weights = rng.normal(size=12)
    for _ in range(20):
        ranking = sample_plackett_luce(score(weights, features), 10, rng)
        weights = pdgd_step(weights, features, ranking, rng.random(10) < 0.3, 0.1)
    relevance = rng.integers(0, 5, 40)
    print(*(repr(float(x)) for x in weights), repr(ndcg_at_k(relevance[ranking], 10, relevance)))
""")


def run_chain(disable_jit: str) -> np.ndarray:
    output = subprocess.run(
        [sys.executable, "-c", CHAIN],
        env=os.environ | {"NUMBA_DISABLE_JIT": disable_jit},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return np.array([float(x) for x in output.split()])


@needs_numba
def test_compiled_and_plain_runs_agree_and_neither_imports_numba_early() -> None:
    """Twenty interactions on a device and on a server end at the same weights, and importing costs no numba."""
    np.testing.assert_allclose(run_chain("0"), run_chain("1"), rtol=1e-9, atol=1e-12)


@needs_numba
def test_a_kernel_may_not_call_a_kernel_of_another_module() -> None:
    """A call that numba's cache could not keep up to date is refused at the first use."""
    scope = {"top_k": rankers.top_k, "__name__": "elsewhere"}
    exec("def kernel(x):\n    return top_k(x, 1)", scope)  # noqa: S102 - a function of another module
    with pytest.raises(TypeError, match="another module"):
        compiled_module.compiled(scope["kernel"])(np.zeros(3))


@needs_numba
def test_without_a_writable_cache_kernels_still_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only install compiles in memory."""
    import numba

    original = numba.njit

    def njit(function, *, cache: bool = False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return original(function, **options)

    monkeypatch.setattr(numba, "njit", njit)
    kernel = compiled_module.compiled(getattr(pdgd.log_add_exp, "py_func"))  # noqa: B009
    assert kernel(0.0, 0.0) == pytest.approx(np.log(2.0))


def test_without_numba_a_kernel_is_the_function_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device nothing is wrapped."""
    monkeypatch.setattr(compiled_module, "COMPILED", False)

    def kernel(x: float) -> float:
        return x

    assert compiled_module.compiled(kernel) is kernel
