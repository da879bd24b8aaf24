"""``foltr demo-secure`` and ``foltr demo-forget``."""

from typing import Annotated, Any

import typer

from foltr.cli import options
from foltr.cli.demo import KEYS, Broker, Clients, Rounds, demo_settings, show
from foltr.cli.settings import takes_settings
from foltr.core.secure.accounting import DEFAULT_EPSILON, LEAST_EPSILON, MOST_EPSILON


@takes_settings(KEYS)
def demo_secure(
    clients: Clients = 100,
    rounds: Rounds = 20,
    mechanism: Annotated[str, typer.Option(help="gaussian, or gamma (far more noise)")] = "gaussian",
    noise_by: Annotated[str, typer.Option(help="For gamma: helpers or clients draw the noise")] = "helpers",
    epsilon: Annotated[
        float, typer.Option(min=LEAST_EPSILON, max=MOST_EPSILON, help="For all rounds together")
    ] = DEFAULT_EPSILON,
    hostile: Annotated[
        int, typer.Option(min=0, max=2000, help="Number of devices that send far too long vectors with forged proofs")
    ] = 0,
    db: options.Db = None,
    broker: Broker = None,
    json: options.JsonFile = None,
    **flags: Any,
) -> None:
    """Show secure sums: only noised sums are visible, a helper is killed, devices vanish."""
    from foltr_research.cli.demos.secure_demo import SecureDemo
    from foltr_research.cli.demos.secure_setup import promise_of

    settings = demo_settings(db or "sqlite:///foltr-demo-secure.sqlite", flags)
    show(SecureDemo(settings, clients, rounds, broker, promise_of(mechanism, noise_by, epsilon), hostile), json)


@takes_settings(KEYS)
def demo_forget(
    clients: Clients = 10,
    rounds: Rounds = 40,
    db: options.Db = None,
    broker: Broker = None,
    json: options.JsonFile = None,
    **flags: Any,
) -> None:
    """Show an erasure: a device harms the model and is forgotten, and its remains are searched for."""
    from foltr_research.cli.demos.departure import check_promise
    from foltr_research.cli.demos.forgetting_demo import ForgettingDemo

    settings = demo_settings(db or "sqlite:///foltr-demo-forget.sqlite", flags)
    results = show(ForgettingDemo(settings, clients, rounds, broker), json)
    check_promise(results["forget"])
