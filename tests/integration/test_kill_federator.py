"""kill -9 of the federator in the middle of a run: broker, federator and signed devices as separate processes."""

import json
from pathlib import Path

from cli.commands import environment
from integration.deployment import FEDERATION, Deployment, died_by_sigkill, on
from integration.oracle import ENOUGH, check_history
from support.prepared_processes import PreparedProcess
from support.waiting import until

from foltr.core.operator.credentials import write_secret
from foltr.storage.queries import list_contributions, list_rounds

ORACLE = Path(__file__).with_name("oracle.py")
N_CLIENTS, N_ROUNDS = 8, 15
OPTIONS = ("--min-clients", "1", "--min-time", "0.15")


@on("sqlite")
async def test_kill_9_of_the_federator_loses_nothing_and_counts_nothing_twice(mqtt_broker, migrated_url, tmp_path):
    """Killed three times while devices contribute 2^i: every update told accepted is in exactly one sum."""
    async with Deployment(tmp_path, mqtt_broker, migrated_url, N_CLIENTS) as deployment:
        for credentials in deployment.devices:
            write_secret(tmp_path / f"{credentials.name}.json", credentials.model_dump_json())
        deployment.start_federator(10_000, *OPTIONS)
        devices = PreparedProcess([str(N_ROUNDS), str(tmp_path)], environment(), program=ORACLE)
        try:
            for kill in range(1, 4):
                enough = kill * N_CLIENTS * N_ROUNDS // 5

                async def have_come(enough: int = enough) -> bool:
                    return len(await list_contributions(deployment.database, FEDERATION)) >= enough

                await until(have_come, "the rounds do not go on")
                deployment.federator.kill()
                assert died_by_sigkill(await deployment.exit_code())
                n_completed = await deployment.n_completed()
                n_rounds = len(await list_rounds(deployment.database, FEDERATION))
                deployment.start_federator(10_000, *OPTIONS)
                await deployment.rounds_reach(n_completed + 1)
                assert len(await list_rounds(deployment.database, FEDERATION)) >= n_rounds
            (tmp_path / ENOUGH).touch()
            await until(lambda: devices.poll() is not None, "the devices go on")
            output, _ = devices.communicate()
        finally:
            devices.kill()
        deployment.federator.terminate()
        assert await deployment.exit_code() == 0
        told = {f"oracle-{i:02d}": n for i, n in enumerate(json.loads(output))}
        # Every model is the sum of exactly the updates its round lists, and each update told accepted is one row.
        assert await check_history(migrated_url, FEDERATION) == told
        assert min(told.values()) >= N_ROUNDS
