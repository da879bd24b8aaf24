"""Tests a stack's dashboard and its metrics for Prometheus."""

from stack import PATIENCE_S, Stack, StackError, wait_until

METRICS_PORT = 9464
_DASHBOARD = "http://localhost:8680"
_ASK = """
import sys, urllib.request as request
asked = request.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.stdin.read().strip()})
sys.stdout.write(request.urlopen(asked, timeout=10).read().decode())
"""


def look_at(stack: Stack, *services: str) -> str:
    """Fetch the dashboard, and each service's metrics as Prometheus would. Raises StackError if one is empty."""
    stack.up("dashboard")
    stack.wait_healthy("dashboard")
    _wait_for("verdict", stack, f"{_DASHBOARD}/ready")
    _wait_for('"verdict"', stack, f"{_DASHBOARD}/api/v1/status")
    _wait_for("foltr_database_up", stack, f"{_DASHBOARD}/metrics")
    for service in services:
        metric = f"foltr_{service.partition('-')[0]}_broker_connected"
        _wait_for(metric, stack, f"http://{service}:{METRICS_PORT}/metrics")
    return f"the dashboard answers with the token it made, and {', '.join(services)} with metrics"


def _wait_for(word: str, stack: Stack, url: str) -> None:
    """Fetch a URL from within the dashboard's container, with Prometheus' token, until a word is there."""

    def is_there() -> bool:
        shown = stack.execute("dashboard", "sh", "-c", f"python -c '{_ASK}' {url} </monitoring/token")
        if word not in shown:
            raise StackError(f"it shows {shown[:500]}")
        return True

    wait_until(f"{word} at {url}", is_there, PATIENCE_S)
