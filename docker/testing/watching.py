"""Tests a stack's dashboard and its metrics for Prometheus."""

import json

from stack import Stack, StackError, wait_until

METRICS_PORT = 9464
_ASK = """
import sys, urllib.request as request
asked = request.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.stdin.read().strip()})
sys.stdout.write(request.urlopen(asked, timeout=10).read().decode())
"""


def look_at(stack: Stack, *services: str) -> str:
    """Fetch the dashboard, and each service's metrics as Prometheus would. Raises StackError if one is empty."""
    stack.up("dashboard")
    stack.wait_healthy("dashboard")
    wait_until("the dashboard is ready", lambda: "verdict" in _ask(stack, "http://localhost:8680/ready"), 30.0)
    status = json.loads(_ask(stack, "http://localhost:8680/api/v1/status"))
    page = _ask(stack, "http://localhost:8680/metrics")
    if "foltr_database_up" not in page or not status:
        raise StackError(f"the dashboard shows {status} and {page[:500]}")
    for service in services:
        name = service.partition("-")[0]
        shown = _ask(stack, f"http://{service}:{METRICS_PORT}/metrics")
        if f"foltr_{name}_broker_connected" not in shown:
            raise StackError(f"{service} shows {shown[:500]}")
    return f"the dashboard answers with the token it made, and {', '.join(services)} with metrics"


def _ask(stack: Stack, url: str) -> str:
    """Fetch a URL from within the dashboard's container, with Prometheus' token."""
    return stack.execute("dashboard", "sh", "-c", f"python -c '{_ASK}' {url} </monitoring/token")
