"""``foltr federator``: run the federator of one federation."""

import asyncio
import signal
from typing import Annotated

import structlog
import typer

from foltr.cli import options
from foltr.cli.output import configure_logging
from foltr.settings import Settings, load_settings

log = structlog.get_logger(__name__)

app = typer.Typer(help="Run the federator.", no_args_is_help=True)


@app.command("run")
def run(
    broker: options.Broker = None,
    db: options.Db = None,
    federation: options.Federation = None,
    n_features: Annotated[
        int | None,
        typer.Option("--features", envvar="FOLTR_N_FEATURES", help="Features of a document; fixed once it exists"),
    ] = None,
    min_clients: Annotated[
        int | None, typer.Option(envvar="FOLTR_MIN_CLIENTS", help="A round with fewer clients makes no model")
    ] = None,
    max_clients: Annotated[
        int | None, typer.Option(envvar="FOLTR_MAX_CLIENTS", help="A round ends at once with so many clients")
    ] = None,
    min_time: Annotated[
        float | None,
        typer.Option(envvar="FOLTR_MIN_TIME_S", help="From this age (s) a round ends once it has min-clients"),
    ] = None,
    max_time: Annotated[
        float | None, typer.Option(envvar="FOLTR_MAX_TIME_S", help="A round's deadline in seconds")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(envvar="FOLTR_ROUNDS", help="Stop after this round number; default: never")
    ] = None,
    interactions: options.Interactions = None,
    learning_rate: Annotated[
        float | None, typer.Option(envvar="FOLTR_LEARNING_RATE", help="Step size of PDGD on the devices")
    ] = None,
    give_up_after: options.GiveUpAfter = None,
) -> None:
    """Run the federator until SIGTERM or Ctrl-C; the open round is taken up again at the next start."""
    settings = load_settings(
        broker_url=broker,
        db_url=db,
        federation=federation,
        n_features=n_features,
        min_clients=min_clients,
        max_clients=max_clients,
        min_time_s=min_time,
        max_time_s=max_time,
        rounds=rounds,
        interactions=interactions,
        learning_rate=learning_rate,
        give_up_after_s=give_up_after,
    )
    configure_logging(settings.log_level, settings.log_format)
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from broker.address import BrokerAddress
    from federator.plan import FederationPlan
    from federator.round import RoundPolicy
    from federator.service import FederatorService
    from foltr.messages import PdgdTraining
    from storage.database import Database
    from storage.migrate import require_head

    plan = FederationPlan(
        settings.federation,
        settings.n_features,
        RoundPolicy(settings.min_clients, settings.max_clients, settings.min_time_s, settings.max_time_s),
        PdgdTraining(
            learning_rate=settings.learning_rate,
            min_interactions=settings.interactions,
            max_interactions=settings.interactions,
        ),
        stop_after_round=settings.rounds,
    )
    address = BrokerAddress.parse(settings.broker_url)
    retry_for_s = float("inf") if settings.give_up_after_s is None else settings.give_up_after_s
    async with await Database.connect(settings.db_url, retry_for_s=retry_for_s) as database:
        await require_head(database)
        service = FederatorService(plan, database, address, give_up_after_s=settings.give_up_after_s)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stop)
        await service.run(
            on_started=lambda: log.info(
                "federator_started",
                federation=plan.federation,
                broker=str(address),
                db=database.location,
            )
        )
    log.info("federator_stopped", federation=plan.federation)
