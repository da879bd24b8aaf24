"""``foltr federator``: run the federator of one federation."""

import asyncio
import signal
from typing import Annotated

import structlog
import typer

from foltr.cli import options
from foltr.cli.experiments.method import chosen_method, chosen_rule, read_logging_policy, read_parameters
from foltr.cli.operator.identities import federator_identity
from foltr.cli.output import configure_logging
from foltr.cli.settings import Settings, load_settings

log = structlog.get_logger(__name__)

app = typer.Typer(help="Run the federator.", no_args_is_help=True)


@app.command("run")
def run(
    credentials: options.Credentials = None,
    allow_unsigned: Annotated[
        bool | None,
        typer.Option(
            "--allow-unsigned",
            envvar="FOLTR_ALLOW_UNSIGNED",
            help="Run without credentials: take any client under any name, sign nothing",
        ),
    ] = None,
    broker: options.Broker = None,
    db: options.Db = None,
    keys: options.Keys = None,
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
    pacing: Annotated[
        str | None, typer.Option(envvar="FOLTR_PACING", help="deadline, or buffered: a model every max-clients updates")
    ] = None,
    over_selection: Annotated[
        float | None,
        typer.Option(envvar="FOLTR_OVER_SELECTION", help="Ask max-clients * (1 + this) clients chosen at random"),
    ] = None,
    staleness_limit: Annotated[
        int | None,
        typer.Option(envvar="FOLTR_STALENESS_LIMIT", help="Buffered: how many versions old an update's model may be"),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(envvar="FOLTR_ROUNDS", help="Stop after this round number; default: never")
    ] = None,
    interactions: options.Interactions = None,
    method: options.Method = None,
    parameters: options.Parameters = None,
    aggregation: options.Aggregation = None,
    byzantine: options.Byzantine = None,
    aggregation_parameters: options.AggregationSet = None,
    fallback: options.Fallback = None,
    unlearning: Annotated[
        str | None,
        typer.Option(
            "--unlearning",
            envvar="FOLTR_UNLEARNING_STRATEGY",
            help="fed_eraser, rollback or retrain; see docs/erasure.md",
        ),
    ] = None,
    unlearning_interval: Annotated[
        int | None,
        typer.Option(envvar="FOLTR_UNLEARNING_INTERVAL", help="Unlearning goes through every so many-th stored round"),
    ] = None,
    history_rounds: Annotated[
        int | None,
        typer.Option(
            envvar="FOLTR_HISTORY_ROUNDS",
            help="Keep all updates of so many newest rounds, of older ones every unlearning-interval-th; default: all",
        ),
    ] = None,
    logging_policy: options.LoggingPolicy = None,
    ranker: options.Ranker = None,
    hidden: options.Hidden = None,
    learning_rate: Annotated[
        float | None, typer.Option(envvar="FOLTR_LEARNING_RATE", help="Step size on the devices")
    ] = None,
    give_up_after: options.GiveUpAfter = None,
) -> None:
    """Run the federator until SIGTERM or Ctrl-C; the open round is taken up again at the next start."""
    settings = load_settings(
        credentials=credentials,
        allow_unsigned=allow_unsigned,
        pacing=pacing,
        over_selection=over_selection,
        staleness_limit=staleness_limit,
        broker_url=broker,
        db_url=db,
        keys=keys,
        federation=federation,
        n_features=n_features,
        min_clients=min_clients,
        max_clients=max_clients,
        min_time_s=min_time,
        max_time_s=max_time,
        rounds=rounds,
        interactions=interactions,
        method=method,
        method_parameters=read_parameters(parameters),
        aggregation=aggregation,
        byzantine=byzantine,
        aggregation_parameters=read_parameters(aggregation_parameters, "--aggregation-set"),
        aggregation_fallback=fallback,
        unlearning_strategy=unlearning,
        unlearning_interval=unlearning_interval,
        history_rounds=history_rounds,
        logging_policy=logging_policy,
        ranker=ranker,
        hidden=hidden,
        learning_rate=learning_rate,
        give_up_after_s=give_up_after,
    )
    configure_logging(settings.log_level, settings.log_format)
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from broker.buffer import IntakeLimits
    from federator.job import UnlearningPolicy
    from federator.plan import FederationPlan
    from federator.round import RoundPolicy
    from federator.service import FederatorService
    from foltr.protocol.states import Pacing
    from storage.database import Database
    from storage.keys import KeyStore, keys_folder
    from storage.migrate import require_head

    identity = federator_identity(settings)
    policy = read_logging_policy(settings)
    training, chosen_ranker = chosen_method(settings, settings.n_features, settings.max_clients, **policy)
    plan = FederationPlan(
        identity.federation,
        settings.n_features,
        RoundPolicy(
            settings.min_clients,
            settings.max_clients,
            settings.min_time_s,
            settings.max_time_s,
            pacing=settings.pacing,
            over_selection=settings.over_selection,
            staleness_limit=settings.staleness_limit if settings.pacing is Pacing.BUFFERED else 0,
            staleness_exponent=settings.staleness_exponent,
            rule=chosen_rule(settings),
        ),
        training,
        chosen_ranker=chosen_ranker,
        stop_after_round=settings.rounds,
        database_patience_s=settings.database_patience_s,
        enrolment_key=identity.enrolment_key,
        unlearning=UnlearningPolicy(
            settings.unlearning_strategy,
            settings.unlearning_interval,
            settings.unlearning_interactions,
            settings.unlearning_min_coverage,
            settings.unlearning_delay_s,
            settings.unlearning_step_s,
            settings.unlearning_patience_s,
        ),
        history_rounds=settings.history_rounds,
    )
    address = identity.address
    if identity.key is None:
        log.warning("unsigned", hint="any client is taken under any name; see `foltr enrol --help`")
    if plan.rule_warning is not None:
        log.warning("rule_needs_more_clients", hint=plan.rule_warning)
    retry_for_s = float("inf") if settings.give_up_after_s is None else settings.give_up_after_s
    data_keys = KeyStore(keys_folder(settings.db_url, settings.keys))
    async with await Database.connect(settings.db_url, retry_for_s=retry_for_s, keys=data_keys) as database:
        await require_head(database)
        service = FederatorService(
            plan,
            database,
            address,
            key=identity.key,
            give_up_after_s=settings.give_up_after_s,
            intake_limits=IntakeLimits(rate_per_s=settings.client_rate_per_s, burst=settings.client_burst),
        )
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
