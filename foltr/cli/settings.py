"""Settings: a TOML file, then the environment (``FOLTR_…``), then flags; read once, checked, frozen.

A key that does not exist fails at start, in the file as in the environment: a typo must not be a default.
"""

import difflib
import os
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from foltr.cli.fields import Option, option_name, read_assignments, read_values
from foltr.errors import SettingsError
from foltr.protocol.states import Pacing, Privacy, Strategy
from foltr.user_files import FileKind, read_text_file

ENV_PREFIX = "FOLTR_"
# Read elsewhere: the settings file, the cache directory, and where the tests and benchmarks find real data.
_OTHER_VARIABLES = {"FOLTR_CONFIG", "FOLTR_CACHE", "FOLTR_DATA"}
# The test suite's own variables may be set while commands run under it.
_TEST_PREFIX = "FOLTR_TEST_"


class Settings(BaseSettings):
    """Everything that can be set, for the federator and for devices. Times are in seconds."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
    )

    broker_url: Annotated[str, Option("--broker")] = "mqtt://127.0.0.1:1883"
    """mqtt[s]://[user:password@]host[:port] of the MQTT broker; with credentials, theirs unless it is set."""
    credentials: str | None = None
    """The file that `foltr device enrol` wrote for this process; for several devices a folder of such files."""
    role: Literal["all", "leader", "ingest"] = "all"
    """all: one process does everything. leader: it keeps rounds, and ingest workers, of role ingest, take updates."""
    allow_unsigned: bool = False
    """A federator without credentials takes any client under any name and signs nothing; else it refuses to start."""
    db_url: Annotated[str, Option("--db")] = "sqlite:///foltr.sqlite"
    """sqlite:///PATH or postgresql://[user:password@]host[:port]/name."""
    keys: Annotated[str | None, Option(metavar="FOLDER")] = None
    """The folder of data keys that updates are encrypted with; if unset beside the SQLite file, or `foltr-keys`."""
    federation: str = "default"
    """The federation's name: one level of the MQTT topics, one key in the database."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level of log lines, which go to standard error."""
    log_format: Literal["text", "json"] = "text"
    """How log lines look."""
    give_up_after_s: float | None = Field(default=None, gt=0, le=30 * 86_400)
    """Exit with code 3 when the broker or the database is away for so many seconds; unset retries for ever."""

    alive_file: Annotated[str | None, Option(metavar="FILE")] = None
    """A file touched every 30 seconds or sooner while the process does its work; the age tells a health check."""

    standby: bool = False
    """A federator waits while another one leads, and takes over when that is gone; unset it takes over at once."""

    metrics_port: int | None = Field(default=None, ge=0, le=65_535)
    """The port that the process shows its metrics to Prometheus on; 0 takes a free one; unset shows none."""
    metrics_host: str = "127.0.0.1"
    """The address that port is on. Whoever reaches it may read: it asks for no token, and has nobody's name."""
    trace_to: Annotated[str | None, Option(metavar="URL")] = None
    """Where a federator sends spans of its rounds, by OTLP over HTTP; http://127.0.0.1:4318/v1/traces, say."""

    n_features: Annotated[int, Option("--features")] = Field(default=136, ge=1, le=4_000_000)
    """Features of a document; fixed once the federation exists."""
    feature_schema: Annotated[str | None, Option("--schema", "FILE")] = None
    """The feature schema as JSON (`docs/features.md`); it gives n_features. Fixed once the federation exists."""
    initial_model: Annotated[str | None, Option(metavar="FILE")] = None
    """The weights a new federation of a linear ranker begins with (`docs/features.md`); unset begins with zeros."""
    min_clients: int = Field(default=2, ge=1, le=10_000_000)
    """A round with fewer contributing clients makes no model."""
    max_clients: int = Field(default=100, ge=1, le=10_000_000)
    """A round ends at once when this many clients have contributed."""
    min_time_s: float = Field(default=10.0, ge=0, le=30 * 86_400)
    """From this age in seconds on a round ends as soon as min_clients have contributed."""
    max_time_s: float = Field(default=600.0, gt=0, le=30 * 86_400)
    """The deadline of a round, in seconds from its opening."""
    pacing: Pacing = Pacing.DEADLINE
    """deadline: an update counts in the round it was made for. buffered: a model from every max_clients updates."""
    over_selection: float | None = Field(default=None, ge=0, le=100)
    """Deadline: ask max_clients * (1 + this) clients chosen at random; unset asks all."""
    updates_per_round: int | None = Field(default=None, ge=1, le=10_000_000)
    """Devices come by in turns, as often as rounds of so many updates need, and do not stay connected; unset: they do.
    A round ends at once with so many, in half of max_time_s as a rule."""
    shortest_period_s: float = Field(default=60.0, ge=1, le=30 * 86_400)
    """With updates_per_round: a device is told to come by no more often than once in so many seconds."""
    longest_period_s: float = Field(default=86_400.0, ge=1, le=30 * 86_400)
    """With updates_per_round: nor less often than once in so many seconds."""
    staleness_limit: int = Field(default=10, ge=0, le=100_000)
    """Buffered: how many model versions old the base of an update may be."""
    staleness_exponent: float = Field(default=0.5, ge=0, le=10)
    """Buffered: an update s versions old weighs (1 + s) ** -staleness_exponent."""
    client_rate_per_s: float = Field(default=50.0, gt=0, le=1e6)
    """Messages a second the federator takes from one client; more are told busy."""
    client_burst: int = Field(default=400, ge=1, le=1_000_000)
    """Messages it takes from one client at once."""
    database_patience_s: float = Field(default=60.0, ge=0, le=86_400)
    """How long one transaction is tried again while the database is away."""
    rounds: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """Stop after this round number; unset goes on for ever."""
    privacy: Privacy | None = None
    """trusted: the federator sees every update. secure: noised sums only, by the policy in its credentials; fixed.
    Unset: as the operator's folder was made for, which its credentials say; else trusted."""
    clip_norm: float | None = Field(default=None, gt=0, le=1e6)
    """Secure: devices shorten what they send to this norm; unset 0.15 * sqrt(interactions) * learning_rate / 0.1 if
    lists are sampled, else a fifth of it."""
    helper_deadline_s: float = Field(default=60.0, gt=0, le=86_400)
    """Secure: a round is abandoned once a helper that is asked has said nothing for so many seconds."""
    interactions: int = Field(default=5, ge=1, le=100_000)
    """Interactions in one update."""
    method: str = "fpdgd"
    """How devices learn and the federator aggregates, as `foltr methods` lists; fixed once the federation exists."""
    method_parameters: Annotated[
        dict[str, str],
        NoDecode,
        Option("--set", "NAME=VALUE", "A parameter of the method; may be given several times"),
    ] = Field(default_factory=dict)
    """Parameters of the method as name=value,name=value; those not named keep the method's defaults."""
    exploration: str | None = None
    """How devices draw lists: none, share:0.1, swaps:0.1, interleaving, sampling or sampling:0.3; unset swaps:0.1."""
    aggregation: str = "mean"
    """The rule by which updates become one, as `foltr rules` lists; of several secure sums the default is median."""
    byzantine: float = Field(default=0.2, ge=0, le=10_000_000)
    """Hostile clients the rule is to withstand: a number of clients, or below 0.5 a share of those that contributed."""
    aggregation_parameters: Annotated[
        dict[str, str],
        NoDecode,
        Option("--aggregation-set", "NAME=VALUE", "A parameter of the rule; may be given several times"),
    ] = Field(default_factory=dict)
    """Parameters of the rule as name=value,name=value; those not named keep the rule's defaults."""
    aggregation_fallback: Annotated[str, Option("--fallback")] = "median"
    """The rule where too few contributed for the first one; abandon ends the round without a model."""
    unlearning_strategy: Annotated[Strategy, Option("--unlearning")] = Strategy.RELEARN
    """How the model is made without a client that was forgotten: `docs/erasure.md`."""
    unlearning_interval: int = Field(default=10, ge=1, le=1_000_000)
    """A step stands for so many stored rounds: fewer where a job had under 100 steps, more where one of relearn had
    over 150, and one by retrain and fed_remove."""
    unlearning_interactions: int | None = Field(default=None, ge=1, le=100_000)
    """What a device learns from in a step; unset three fifths of `interactions`, all of them by retrain, and by relearn
    those of all rounds that the step stands for, up to 150."""
    unlearning_min_coverage: float = Field(default=0.5, ge=0, le=1)
    """A job of fed_eraser, rollback or fed_remove that covers less of what others had sent begins again as relearn."""
    unlearning_most_change: float = Field(default=0.3, gt=0, le=1e6)
    """A job of fed_remove that changes the model by more than so much of its length begins again as relearn."""
    unlearn_every_s: float = Field(default=86_400.0, ge=0, le=30 * 86_400)
    """The model is made anew once the oldest request to be forgotten has waited so long; data is erased at once."""
    unlearn_after: int | None = Field(default=None, ge=1, le=10_000_000)
    """The model is made anew earlier once so many wait for it; unset: only `unlearn_every_s` decides."""
    unlearning_swap_every_s: float = Field(default=3600.0, ge=0, le=30 * 86_400)
    """The model is made anew no sooner than so long after the last such one was put in service, however many ask."""
    unlearning_deadline_s: float = Field(default=30 * 86_400.0, ge=0, le=30 * 86_400)
    """An erasure that is not done so long after it was asked for raises an alarm; who asked is told this day."""
    unlearning_may_reset: bool = False
    """A job that can only put the first model in service does so by itself; else it waits for the operator's order."""
    unlearning_step_s: float = Field(default=60.0, gt=0, le=86_400)
    """A step ends after so long if there are enough answers; else it is asked again."""
    unlearning_patience_s: float = Field(default=3600.0, ge=0, le=30 * 86_400)
    """After so long without any device online unlearning pauses until one is back."""
    anchor: Annotated[bool, Option("--anchor/--no-anchor")] = True
    """Devices compare the newest model with an older one and vote; one that most find worse is taken back."""
    evaluation: Annotated[bool, Option("--evaluation/--no-evaluation")] = True
    """Devices say how many of their lists were clicked and how far up; in `secure` the policy says it."""
    evaluation_take_back: Annotated[bool, Option("--evaluation-take-back/--no-evaluation-take-back")] = False
    """A model is taken back when three rounds' lists earn significantly less than those before."""
    history_rounds: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """Updates of so many of the newest rounds are kept, of older ones every unlearning_interval-th; unset keeps all."""
    ranker: Literal["linear", "neural"] = "linear"
    """The kind of ranker; fixed once the federation exists."""
    hidden: int = Field(default=64, ge=1, le=4096)
    """Hidden units of a neural ranker; fixed once the federation exists."""
    activation: Literal["sigmoid", "relu"] | None = None
    """Activation of the hidden units; fixed once the federation exists. If unset relu for foltr-es, else sigmoid."""
    learning_rate: float | None = Field(default=None, gt=0, le=100)
    """Step size on the devices; the method's own default if unset."""
    logging_policy: Annotated[str | None, Option(metavar="FILE")] = None
    """fedips, fedavg: the linear ranker that shows the lists, as `foltr models export` writes it; unset: the newest."""

    api_host: Annotated[str, Option("--host")] = "127.0.0.1"
    """The address that the HTTP API listens on; it speaks no TLS itself: elsewhere put a proxy before it."""
    api_port: Annotated[int, Option("--port")] = Field(default=8680, ge=0, le=65_535)
    """The port that the HTTP API listens on; 0 takes a free one."""
    api_tokens: Annotated[str, Option("--tokens", "FILE")] = "foltr-tokens.json"
    """The file that says which tokens may ask the HTTP API, as hashes."""
    api_connections_per_address: Annotated[int, Option("--connections-per-address")] = Field(default=100, ge=1, le=500)
    """Connections to the HTTP API that one address may have, unless it is a proxy's; all together may have 500."""
    api_proxies: Annotated[str, Option("--proxies", "ADDRESSES")] = "127.0.0.1,::1"
    """Reverse proxies before the HTTP API, as addresses or networks: it believes their X-Forwarded-For and -Proto."""

    client_id: Annotated[str | None, Option("--id")] = None
    """The device's name; the host name if unset."""
    store: str | None = None
    """The device's SQLite file, of several a folder; if unset {federation}-{client_id}.sqlite, of several memory."""
    slots: Annotated[str | None, Option(metavar="FOLDER")] = None
    """A folder that replicas of one device service share: each takes one that is free, with its name and its store."""
    tokens: Annotated[str | None, Option(metavar="FOLDER")] = None
    """With `slots`: one-time tokens; where no slot is free a replica enrols itself with one that nobody has used."""
    dataset: Annotated[str | None, Option("--data")] = None
    """A folder with train.txt and test.txt in LETOR format, or mslr-sample, or synthetic."""
    clicks: str = "navigational"
    """The simulated users' click model: perfect, navigational, informational, poison, pbm-1, fedips-1, ..."""
    seed: int = Field(default=1, ge=0, le=2**63 - 1)
    """Seed of everything simulated."""

    @field_validator("method_parameters", "aggregation_parameters", mode="before")
    @classmethod
    def _read_assignments(cls, value: Any) -> Any:
        if isinstance(value, str):
            return read_assignments(value.split(","))
        return {name: str(item) for name, item in value.items()} if isinstance(value, dict) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (the signature is pydantic's)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = os.environ.get("FOLTR_CONFIG")
        from_file = (InitSettingsSource(settings_cls, _read_settings_file(Path(file))),) if file else ()
        return (init_settings, env_settings, *from_file)


def _read_settings_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text_file(path, FileKind.SETTINGS))
    except OSError as error:
        raise SettingsError(f"FOLTR_CONFIG: {path}: {error.strerror}; name a file as docs/settings.md says") from error
    except (ValueError, RecursionError) as error:
        cause = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise SettingsError(f"FOLTR_CONFIG: {path} is not TOML: {cause}; write it as docs/settings.md says") from error


def load_settings(**flags: Any) -> Settings:
    """The settings, with ``flags`` (those that are not None) on top, as options say them.

    Raises:
        SettingsError: one line for each wrong key, with the allowed values.
    """
    _refuse_unknown_variables()
    try:
        return Settings(**read_values(Settings, flags))
    except ValidationError as error:
        problems = "; ".join(_explain(problem) for problem in error.errors(include_url=False))
        raise SettingsError(problems) from error


def _explain(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        names = {option_name(Settings, name).strip("-").replace("-", "_"): name for name in Settings.model_fields}
        meant = names.get(key.replace("-", "_")) or _close_to(key, [*Settings.model_fields])
        return f"{key}: there is no such setting; {_instead(meant, Settings.model_fields)}"
    return f"{key}: {problem['msg']}, not {problem['input']!r:.60}"


def _refuse_unknown_variables() -> None:
    known = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields} | _OTHER_VARIABLES
    for variable in sorted(os.environ):
        if variable.startswith(ENV_PREFIX) and variable not in known and not variable.startswith(_TEST_PREFIX):
            raise SettingsError(f"{variable}: there is no such setting; {_instead(_close_to(variable, known), known)}")


def _close_to(name: str, known: Collection[str]) -> str | None:
    """What was meant by a name that is mistyped; None where nothing is close."""
    lowered = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.75)
    return lowered[close[0]] if close else None


def _instead(meant: str | None, known: Collection[str]) -> str:
    return f"did you mean {meant}?" if meant is not None else f"known are {', '.join(sorted(known))}"
