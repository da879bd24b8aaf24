"""What processes show to Prometheus on their own ports."""

import asyncio
import re
import subprocess
from pathlib import Path

import httpx2
from prometheus_client.parser import text_string_to_metric_families
from support.waiting import PATIENCE_S, until

SHOWN = re.compile(r"metrics_shown\W.*?(http://[\w.:]+/metrics)")


async def shown_at(log: Path) -> str:
    """Wait until a process says in its log where it shows its metrics."""
    found: list[str] = []

    def is_said() -> bool:
        found.extend(SHOWN.findall(log.read_text()) if log.exists() else ())
        return bool(found)

    await until(is_said, "no metrics are shown")
    return found[-1]


async def scrape(url: str) -> str:
    async with httpx2.AsyncClient() as client:
        answer = await client.get(url, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return answer.text


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, without those that all of a process have."""
    of_all = {"federation", "helper"}
    return {
        (sample.name, *(value for label, value in sorted(sample.labels.items()) if label not in of_all)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def complaints(text: str) -> str:
    """What promtool finds wrong with what was shown."""
    command = ["promtool", "check", "metrics"]
    done = await asyncio.to_thread(subprocess.run, command, input=text, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
