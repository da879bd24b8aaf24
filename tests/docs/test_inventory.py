"""Every command and snippet of the documents is run by a test, and this says by which."""

from cli.commands import PROJECT
from cli.snippets import blocks
from cli.test_docs import WALK_THROUGH
from docs.markdown_files import markdown_files, snippets

# Who runs the blocks of a page, by the beginning of a block's first line; "" is every block that is not named.
HERE = "tests/docs/test_snippets.py"
RUN_BY: dict[str, dict[str, str]] = {
    "README.md": {
        "make demo": ".ci/run",  # `make test` is what it runs; `foltr demo` is run by tests/cli/test_demo_methods.py
        "import numpy": "tests/cli/test_readme.py",
    },
    # Its other two lines: research/tests/cli/demos.
    "docs/README.md": {"": HERE},
    "clients/browser/README.md": {"": "clients/browser/tests/readme.test.ts"},
    "docker/README.md": {"": HERE},  # and by docker/testing, where there are containers
    "docs/methods.md": {"": "research/tests/test_add_a_method.py"},
    "docs/api.md": {
        "foltr api run --db postgresql://foltr@localhost/foltr --credentials": "tests/integration/test_api_orders.py",
        "": HERE,
    },
    "docs/devices.md": {"": HERE},
    "docs/erasure.md": {"": "tests/core/erasure/test_erasure_document.py"},
    "docs/errors.md": {"": HERE},
    "docs/features.md": {"": HERE},
    "docs/history.md": {"-- ": "tests/cli/test_docs.py", "": HERE},
    "docs/privacy.md": {
        "foltr broker config": "tests/cli/privacy/test_secure_federation.py",
        "foltr privacy": "tests/cli/privacy/test_privacy.py",
        "": HERE,
    },
    # The list of experiments; one of them takes minutes, and what makes them is run by research/tests/reproductions.
    "docs/reproductions.md": {"foltr reproduce": "research/tests/cli/test_reproduce.py", "from pathlib": HERE},
    "docs/runbook.md": {"": "tests/cli/status/test_status.py"},
    "docs/robustness.md": {"[defence]": "tests/cli/test_docs.py", "": HERE},
    "docs/sdk.md": {"// ": "clients/browser/tests/sdk_page.test.ts", "": "tests/cli/test_sdk_page.py"},
    "docs/servers.md": {
        "foltr broker worker": "tests/cli/test_brokers_page.py",
        "": "tests/cli/test_postgresql_page.py",
    },
    "docs/settings.md": {"": "tests/cli/test_docs.py"},
    "docs/simulation.md": {
        "import foltr_research": "research/tests/test_door.py",
        "import numpy": "research/tests/plugins/test_plugins.py",
        "": "research/tests/cli/test_simulate.py",
    },
    "docs/sizing.md": {
        "python research/benchmarks/sizing.py": "research/tests/benchmarks/test_sizing.py",
        "foltr": "tests/cli/test_pace_page.py",
        "": "research/tests/benchmarks/test_benchmarks.py",
    },
    "docs/try.md": {"": "tests/cli/test_try_page.py"},
    "examples/desktop_search/README.md": {
        "python examples/desktop_search/terminal.py": "tests/examples/desktop_search/test_search.py",
        "python examples/desktop_search/simulate.py": "tests/examples/desktop_search/test_simulate.py",
    },
    "examples/docs_search/README.md": {"": "tests/examples/docs_search/test_visit.py"},
    **{page: {"": "tests/cli/test_docs.py"} for page in WALK_THROUGH if "#" not in page},
}


def who_runs(file: str, snippet: str) -> str | None:
    if any(entry.startswith(f"{file}#") and snippet in blocks(entry, "sh") for entry in WALK_THROUGH):
        return "tests/cli/test_docs.py"
    by_beginning = RUN_BY.get(file, {})
    beginnings = [beginning for beginning in by_beginning if snippet.startswith(beginning)]
    return by_beginning[max(beginnings, key=len)] if beginnings else None


def test_every_snippet_is_run_by_a_test():
    """Who adds one runs it, and says here where; a reader has only what was tried."""
    files = [file for file in markdown_files() if not file.startswith("research/results/")]
    nobody = [
        f"{file}: {one.splitlines()[0]}" for file in files for one in snippets(file) if who_runs(file, one) is None
    ]
    assert nobody == []


def test_who_runs_them_is_there():
    """And each beginning is that of a snippet."""
    for file, by_beginning in RUN_BY.items():
        for beginning, runner in by_beginning.items():
            assert (PROJECT / runner).exists(), runner
            if beginning:
                assert any(one.startswith(beginning) for one in snippets(file)), (file, beginning)
