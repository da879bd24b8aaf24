"""What a broker retains of unlearning jobs: how far the newest one is, and nothing of those that are over."""

from integration.deployment import FEDERATION, Deployment, client_name, on
from integration.test_forgetting import devices_of, start
from support.federator_by_hand import retained
from support.waiting import PATIENCE_S, until

from foltr.core.protocol.announcements import UnlearningProgress
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.topics import Topics
from foltr.storage.queries import list_contributions


async def retained_jobs(url: str) -> dict[int, UnlearningProgress]:
    """The jobs that the broker retains something of."""
    found: dict[int, UnlearningProgress] = {}
    for topic, payload in (await retained(url, f"{Topics(FEDERATION).root}/unlearning/+")).items():
        if topic == Topics(FEDERATION).unlearning_round or not payload:
            continue  # the job's step; or cleared while we look
        progress = open_envelope(payload).read(UnlearningProgress)
        found[progress.job] = progress
    return found


async def settles_on(url: str, expected: dict[int, str]) -> None:

    async def is_retained() -> bool:
        return {job: progress.state for job, progress in (await retained_jobs(url)).items()} == expected

    await until(is_retained, f"the broker does not retain {expected}")


@on("sqlite")
async def test_a_job_that_is_over_is_told_and_then_cleared(mosquitto_server, migrated_url, tmp_path):
    """That it is done can be read until the next job begins, or the federator is started again."""
    url = mosquitto_server.url
    async with Deployment(tmp_path, url, migrated_url, 4) as deployment:
        start(deployment)
        async with devices_of(deployment, tmp_path) as clients:

            async def learned() -> bool:
                rows = await list_contributions(deployment.database, FEDERATION)
                done = {row.client_id for row in rows if row.round_state == "completed"}
                return {client_name(0), client_name(1)} <= done

            await until(learned, "both that leave have to be in a model")
            assert (await clients[0].forget_me(timeout_s=PATIENCE_S)).state == "forgotten"
            await settles_on(url, {1: "done"})
            assert (await clients[1].forget_me(timeout_s=PATIENCE_S)).state == "forgotten"
            await settles_on(url, {2: "done"})
        deployment.federator.kill()
        await deployment.exit_code()
        start(deployment)
        await deployment.serves()
        await settles_on(url, {})
