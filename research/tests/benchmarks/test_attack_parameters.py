"""The search for harmful parameters writes what the experiment reads. No figure is judged."""

import json
from pathlib import Path

import pytest
from cli.commands import program_process

from foltr_research.reproductions.robustness.aware_attacks import CHOSEN

BENCHMARK = Path(__file__).parents[3] / "research/benchmarks" / "attack_parameters.py"


@pytest.mark.slow
def test_findings_are_those_of_the_attack_that_was_asked_for(tmp_path: Path) -> None:
    """Those of others in the file stay, and the command that found them is there."""
    file = tmp_path / "chosen.json"
    file.write_text(json.dumps({"attacks": {"creep": {"parameters": {"step": 1}}, "of old": {}}}))
    options = ("--attack", "framing (full)", "--tries", "1", "--jobs", "1", "--out", file)
    done = program_process(BENCHMARK, "synthetic", *options, timeout_s=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert found.keys() == json.loads(CHOSEN.read_text()).keys()
    assert found["attacks"]["creep"] == {"parameters": {"step": 1}}
    assert found["attacks"]["framing (full)"]["parameters"] == {}
    assert 0.0 < found["attacks"]["framing (full)"]["kept"] < 1.5
    assert found["attacks"].keys() == {"creep", "framing (full)"}
    assert "attack_parameters.py synthetic --rule adaptive --attackers 4 --tries 1" in found["command"]
