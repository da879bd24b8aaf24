"""``foltr client``: simulated users on real edge clients."""

import asyncio
import signal
import socket
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer

from foltr.alive_file import AliveFile
from foltr.cli import options
from foltr.cli.fields import Option, read_assignments, takes_fields
from foltr.cli.fleet.enrolling import enrol, enrol_in_slot
from foltr.cli.fleet.slots import Slot, take_enrolled_slot, take_new_slot
from foltr.cli.operator.identities import device_credentials, device_files
from foltr.cli.output import configure_logging, console, print_json
from foltr.cli.settings import Settings, load_settings
from foltr.errors import SettingsError
from foltr.operator.credentials import read_credentials
from foltr.protocol.topics import check_name
from foltr.secure.accounting import LEAST_DELTA, LEAST_EPSILON, MOST_EPSILON
from foltr.user_files import file_name_of

if TYPE_CHECKING:
    from edge_client.sums.privacy_limits import PrivacyLimits
    from edge_client.training.unlearning_limits import UnlearningLimits
    from foltr.attacks.registry import AttackSpec
    from foltr.cli.fleet.fleet import Fleet

    Limits = tuple[UnlearningLimits, PrivacyLimits]

log = structlog.get_logger(__name__)

app = typer.Typer(help="Run simulated devices.", no_args_is_help=True)


app.command("enrol")(enrol)


@app.callback()
def _group() -> None:
    """Run simulated devices."""


RUN_FIELDS = (
    *("client_id", "credentials", "broker_url", "federation", "dataset", "clicks", "interactions", "store", "seed"),
    *("feature_schema", "give_up_after_s", "aggregation", "byzantine", "slots", "tokens", "alive_file"),
)
# What the rule is to those who attack it; it is the federator's to choose.
RUN_OPTIONS = {
    "feature_schema": Option(
        "--schema", "FILE", "The devices' feature schema as JSON, which scales the data's features; default: by query"
    ),
    "aggregation": Option(text="With --attack: the rule that the attackers believe in"),
    "byzantine": Option(
        text="With --attack: how many hostile clients they believe the rule withstands, or which share below 0.5"
    ),
}


@app.command("run")
@takes_fields(Settings, RUN_FIELDS, RUN_OPTIONS)
def run(
    count: Annotated[
        int, typer.Option(min=1, max=10_000, help="So many devices in one process, named ID-0001 and on")
    ] = 1,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, max=2**31 - 1, help="Take part in so many rounds; default: in all")
    ] = None,
    guard: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="The share of the lists with clicks, e.g. 0.1, that a device keeps to judge new models by, and does "
            "not learn from: it refuses one that explains them far worse; default: no guard",
        ),
    ] = None,
    votes: Annotated[
        bool,
        typer.Option(
            "--votes/--no-votes",
            help="Say with each update whether the newest model suits the user's clicks better or worse than the "
            "federation's anchor",
        ),
    ] = True,
    evaluation: Annotated[
        bool,
        typer.Option(
            "--evaluation/--no-evaluation",
            help="Say with each update how many of its lists were clicked, and how far up, if the federation asks",
        ),
    ] = True,
    unlearning_steps_a_day: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**31 - 1,
            help="A device answers so many steps of unlearning jobs a day; 0 answers none; default: 200",
        ),
    ] = None,
    unlearning_steps_a_click: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2**31 - 1,
            help="It learns from a click that it kept in so many steps in all; default: 50",
        ),
    ] = None,
    unlearning_fewest: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            help="It answers no step from fewer clicks than so many; default: 3",
        ),
    ] = None,
    max_epsilon: Annotated[
        float | None,
        typer.Option(
            min=LEAST_EPSILON,
            max=MOST_EPSILON,
            help="Take no part under a policy of secure sums with a higher epsilon; default: 10",
        ),
    ] = None,
    max_delta: Annotated[
        float | None, typer.Option(min=LEAST_DELTA, max=0.5, help="Nor under one with a higher delta; default: 1e-05")
    ] = None,
    min_cohort: Annotated[
        int | None,
        typer.Option(min=2, max=2**31 - 1, help="Nor under one whose sums may be of fewer clients; default: 10"),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(help="For experiments: what hostile devices do; `foltr attacks` lists what there is"),
    ] = None,
    attackers: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="With --attack: the first so many devices attack; default: all"),
    ] = None,
    attack_parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--attack-set",
            metavar="NAME=VALUE",
            help="A parameter of the attack; may be given several times. knowledge=full: the honest devices of this "
            "process are overheard",
        ),
    ] = None,
    json: options.Json = False,
    **flags: Any,
) -> None:
    """Run devices whose users issue queries of a data set and click as a click model says."""
    settings = load_settings(**flags)
    configure_logging(settings.log_level, settings.log_format)
    slot = _take_slot(settings, count)
    if slot is not None:
        at = {"client_id": slot.name, "store": str(slot.store)}
        if slot.credentials.exists():
            at["credentials"] = str(slot.credentials)
        settings = load_settings(**flags | at)
    name = check_name("client_id", settings.client_id or _name_in(settings.credentials) or socket.gethostname())
    attacking = _read_attack(attack, attackers, attack_parameters, count)
    if guard is not None:
        from edge_client.guard.guard import checked_share

        checked_share(guard)
    limits = _read_limits(
        {
            "steps_a_day": unlearning_steps_a_day,
            "steps_a_click": unlearning_steps_a_click,
            "fewest_interactions": unlearning_fewest,
        },
        {"max_epsilon": max_epsilon, "max_delta": max_delta, "min_cohort": min_cohort},
    )
    fleet = asyncio.run(_run_fleet(settings, name, count, rounds, attacking, guard, votes, evaluation, limits))
    if slot is not None and slot.name in fleet.forgotten:
        slot.close_for_ever()
    counts, n_refused = dict(Counter(fleet.receipts)), fleet.n_refused_models
    if json:
        refused = {} if guard is None else {"refused_models": n_refused}
        print_json({"receipts": counts, **refused})
        return
    console.print("receipts: " + (", ".join(f"{code} {n}" for code, n in counts.items()) or "none"))
    if guard is not None:
        console.print(f"models refused by guards: {n_refused}")


def _take_slot(settings: Settings, count: int) -> Slot | None:
    """The slot of this replica; None where it shares no folder with others."""
    if settings.slots is None:
        if settings.tokens is not None:
            raise SettingsError("tokens: a device that enrols itself keeps its credentials in a slot; add --slots")
        return None
    if count > 1 or not {"store", "client_id", "credentials"}.isdisjoint(settings.model_fields_set):
        raise SettingsError("slots: a replica is one device, with the name, store and credentials of its slot")
    folder = Path(settings.slots)
    slot = take_enrolled_slot(folder)
    if slot is None and settings.tokens is not None:
        slot = enrol_in_slot(folder, Path(settings.tokens), settings)
        if slot is None:
            raise SettingsError(
                f"tokens: no enrolled device of {folder} is free, nor is a token of {settings.tokens} left; the "
                "operator makes more: foltr device enrol CLIENT --token"
            )
    if slot is None and settings.broker_url.startswith("mqtts:"):
        raise SettingsError(
            f"slots: no enrolled device of {folder} is free; the operator enrols more: foltr device enrol"
        )
    return slot or take_new_slot(folder, "device")


def _read_limits(unlearning: dict[str, Any], privacy: dict[str, Any]) -> "Limits":
    """What unlearning may ask of each device, and what policies may cost it; None: as a device has it by default."""
    from edge_client.sums.privacy_limits import PrivacyLimits
    from edge_client.training.unlearning_limits import UnlearningLimits

    return (
        UnlearningLimits(**{name: number for name, number in unlearning.items() if number is not None}),
        PrivacyLimits(**{name: number for name, number in privacy.items() if number is not None}),
    )


def _read_attack(
    attack: str | None, n_attackers: int | None, assignments: list[str] | None, count: int
) -> "tuple[AttackSpec, int] | None":
    """What the first devices do, and how many they are; None where all are honest."""
    from foltr.attacks.registry import check_without_model, read_attack

    if attack is None:
        if n_attackers is not None or assignments:
            raise SettingsError("--attackers, --attack-set: nobody attacks; add --attack, or leave them out")
        return None
    try:
        spec = read_attack(attack, read_assignments(assignments or ()))
        check_without_model(spec)
    except ValueError as error:
        raise SettingsError(f"--attack-set: {error}") from error
    if n_attackers is not None and n_attackers > count:
        raise SettingsError(f"--attackers: {n_attackers} of {count} devices; raise --count, or let fewer attack")
    return spec, count if n_attackers is None else n_attackers


async def _run_fleet(
    settings: Settings,
    name: str,
    count: int,
    rounds: int | None,
    attacking: "tuple[AttackSpec, int] | None",
    guard: float | None,
    votes: bool,
    evaluation: bool,
    limits: "Limits",
) -> "Fleet":
    """Run the devices until they are done or told to stop; returns what came of them."""
    from foltr.aggregation.rule_spec import read_rule
    from foltr.cli.experiments.datasets import find_data
    from foltr.cli.fleet.fleet import Fleet
    from foltr.protocol.schemas import FeatureSchema

    attack, n_attackers = (None, 0) if attacking is None else attacking
    believed = (
        None
        if attack is None
        else read_rule(
            settings.aggregation,
            byzantine=settings.byzantine,
            parameters=settings.aggregation_parameters,
            fallback=settings.aggregation_fallback,
        )
    )

    schema = None if settings.feature_schema is None else FeatureSchema.read(settings.feature_schema)
    data = find_data(settings.dataset, settings.seed, normalise=schema is None)
    if schema is not None and schema.n_features != data.train.n_features:
        raise SettingsError(
            f"schema: {settings.feature_schema} has {schema.n_features} features, {data.description} "
            f"{data.train.n_features}"
        )
    names = [name] if count == 1 else [f"{name}-{i:04d}" for i in range(1, count + 1)]
    credentials = device_credentials(settings, names)
    federation = next((one.federation for one in credentials.values()), settings.federation)
    fleet = Fleet(
        # Credentials name the broker, unless another was asked for.
        broker_url=None if credentials and "broker_url" not in settings.model_fields_set else settings.broker_url,
        federation=federation,
        credentials=credentials,
        credentials_files=device_files(settings, names),
        data=data,
        clicks=settings.clicks,
        interactions=settings.interactions,
        seed=settings.seed,
        stores=_stores(settings, federation, names),
        n_rounds=rounds,
        give_up_after_s=settings.give_up_after_s,
        attack=attack,
        n_attackers=n_attackers,
        believed_rule=believed,
        guard=guard,
        votes=votes,
        evaluation=evaluation,
        schema=schema,
        unlearning_limits=limits[0],
        privacy_limits=limits[1],
        alive_file=AliveFile(settings.alive_file),
    )
    task = asyncio.create_task(fleet.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        log.info("clients_stopped", n_clients=count)
    return fleet


def _name_in(credentials: str | None) -> str | None:
    """The device named by its credentials, where they are one file."""
    if credentials is None or Path(credentials).is_dir():
        return None
    return read_credentials(Path(credentials), "device").name


def _stores(settings: Settings, federation: str, names: list[str]) -> dict[str, str]:
    if len(names) == 1:
        return {names[0]: settings.store or file_name_of(f"{federation}-{names[0]}", ".sqlite")}
    if settings.store is None:
        return dict.fromkeys(names, ":memory:")
    folder = Path(settings.store)
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"store: {folder} is a file; several devices need a folder")
    folder.mkdir(parents=True, exist_ok=True)
    return {name: str(folder / file_name_of(name, ".sqlite")) for name in names}
