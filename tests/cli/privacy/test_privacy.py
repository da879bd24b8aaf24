"""``foltr privacy plan``: plans in plain words."""

import json
import shlex

import pytest
from cli.commands import foltr
from cli.snippets import blocks

PLAN = ("privacy", "plan", "--clients", 1000, "--rounds", 200, "--epsilon", 8, "--dim", 136)


def test_a_plan_says_in_words_what_noise_costs():
    """Sigma, the period, clients a round, noise beside an update, and what comes of it; of both mechanisms."""
    done = foltr(*PLAN, code=0)
    lines = done.stdout.splitlines()
    assert "epsilon 8 with delta 1e-06 for all participations" in lines[0]
    bare = foltr(*PLAN, "--norm-proof", "none")
    assert "epsilon 8 (gaussian: with delta 1e-06)" in bare.stdout.splitlines()[0]
    assert lines[1:5] == [
        "gaussian, k = 20: a client in each 10th round (b = 10), 100 clients a round",
        "  sigma 854 at C_int 256; noise 3.2 times the update",
        "  epsilon compares an update with zeros; compared with another update (replace) it is 18.4",
        "  learns as without noise",
    ]
    assert "gamma, k = 20: a client in each 10th round" in done.stdout
    assert "gaussian, k = 200: a client in every round (b = 1), 1000 clients a round" in done.stdout


def test_the_commands_of_the_document_run():
    """docs/privacy.md, from the first command to the last."""
    lines = "\n".join(blocks("docs/privacy.md", "sh")).splitlines()
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("foltr privacy ")]
    assert commands
    for command in commands:
        foltr(*command, code=0)


def test_a_plan_as_json():
    """The same, a record for each; what is infinite is null."""
    planned = json.loads(foltr(*PLAN, "--json").stdout)
    assert [(one["mechanism"], one["participations"]) for one in planned] == [
        *(("gaussian", 20), ("gamma", 20), ("gaussian", 200), ("gamma", 200))
    ]
    assert planned[0]["sigma"] == pytest.approx(854.3, abs=0.1)
    assert planned[0]["replace_epsilon"] == pytest.approx(18.4, abs=0.05)
    bare = json.loads(foltr(*PLAN, "--json", "--norm-proof", "none").stdout)
    assert all(one["sigma"] > other["sigma"] for one, other in zip(planned, bare, strict=True))
    assert json.loads(foltr("privacy", "plan", "--clients", 5, "--json").stdout)[0]["noise_to_update"] is None
    hopeless = foltr("privacy", "plan", "--clients", 10, "--rounds", 20, "--epsilon", 1, code=0)
    assert "hopeless: the noise drowns the updates" in hopeless.stdout


def test_a_wrong_value_is_named():
    """With the exit code of wrong settings."""
    for option, value in (("epsilon", 0), ("delta", 2), ("helpers", 1), ("norm-proof", "l1")):
        said = foltr("privacy", "plan", f"--{option}", value, code=2).stderr
        assert option in said.replace("_", "-"), option
