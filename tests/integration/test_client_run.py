"""``foltr client run`` against a federation that does not take its device in: an error, at once, and in words."""

import asyncio

import pytest
from cli.commands import foltr_process
from integration.deployment import FEDERATION, Deployment


@pytest.fixture
def letor(tmp_path):
    """Ranking data of as many features as the federation's models have."""
    folder = tmp_path / "letor"
    folder.mkdir()
    for name in ("train.txt", "test.txt"):
        lines = [f"{i % 2} qid:{i // 3} 1:0.{i} 2:0.2 3:0.5 4:0.{9 - i}" for i in range(9)]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


async def test_a_device_that_nobody_enrolled_ends_with_an_error(mqtt_broker, tmp_path, letor):
    """It hears of every round, and clicked through them; that was exit code 0, after waiting for nothing."""
    async with Deployment(tmp_path, mqtt_broker, f"sqlite:///{tmp_path / 'foltr.sqlite'}", 1) as deployment:
        deployment.start_federator(9)
        await deployment.serves()
        done = await asyncio.to_thread(
            foltr_process,
            *("client", "run", "--id", "foo", "--federation", FEDERATION, "--broker", mqtt_broker),
            *("--data", letor, "--rounds", 1, "--store", tmp_path / "foo.sqlite"),
            cwd=tmp_path,
        )
    assert done.returncode == 3, done.stderr
    assert "error: " in done.stderr
    assert "the federator does not take it in: not_enrolled" in done.stderr
    assert "foltr device enrol NAME" in done.stderr.splitlines()[-1]
