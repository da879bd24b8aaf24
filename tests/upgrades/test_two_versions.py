"""An older version of foltr and this one get on as docs/upgrade.md says, whoever is upgraded first.

The older one is a checkout that FOLTR_TEST_OLDER names, as `git worktree add ../older COMMIT` makes it; it runs
with the packages that are installed for this one. There is none in a source archive or a shallow clone, so these tests
are skipped unless somebody asks for them; `-s` shows what was found.
"""

import os
from pathlib import Path

import pytest
from cli.commands import PROJECT
from upgrades.deployment import Deployment, Version
from upgrades.trials import TRIALS, schema_of

OLDER = os.environ.get("FOLTR_TEST_OLDER")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(OLDER is None, reason="FOLTR_TEST_OLDER names no checkout of an older version"),
]


@pytest.mark.parametrize("trial", TRIALS.values(), ids=list(TRIALS))
def test_two_versions_in_one_federation(trial, tmp_path):
    """Nothing counts twice, every round can be made again, and what cannot work is refused in words."""
    old, new = Version(Path(str(OLDER)).resolve()), Version(PROJECT)
    print(f"\n{trial.__name__} (tables {schema_of(old)} and {schema_of(new)})")  # noqa: T201
    here = Deployment(tmp_path, old)
    try:
        for line in trial(here, old, new):
            print(f"  {line}", flush=True)  # noqa: T201
    finally:
        here.close()
