"""The groups of settings, as in ``foltr.toml``: ``[rounds]``, ``[learning]``, … Times are in seconds.

A key is the field's name, its environment variable ``FOLTR_`` and the key in capitals. Keys are unique across groups. A
value that nobody chooses is not a setting but a constant, with its reason, in the module that uses it.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from foltr.cli.fields import Option, read_assignments
from foltr.core.protocol.states import Pacing, Privacy, Strategy

ENV_PREFIX = "FOLTR_"


class Group(BaseModel):
    """A group of settings: validated and frozen."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, use_attribute_docstrings=True
    )
    env_prefix: ClassVar[str] = ENV_PREFIX


def _read_assignments(value: Any) -> Any:
    if isinstance(value, str):
        return read_assignments(value.split(","))
    return {name: str(item) for name, item in value.items()} if isinstance(value, dict) else value


class Operations(Group):
    """What a process connects to, as whom, and what it shows."""

    broker_url: Annotated[str, Option("--broker")] = "mqtt://127.0.0.1:1883"
    """mqtt[s]://[user:password@]host[:port] of the broker; if unset, the credentials' broker."""
    credentials: str | None = None
    """The file that `foltr device enrol` wrote; for several devices a folder of such files."""
    role: Literal["all", "leader", "ingest"] = "all"
    """all: one process does everything. leader: keeps rounds. ingest: a worker that takes updates."""
    allow_unsigned: bool = False
    """Start without credentials: take any client under any name and sign nothing."""
    db_url: Annotated[str, Option("--db")] = "sqlite:///foltr.sqlite"
    """sqlite:///PATH or postgresql://[user:password@]host[:port]/name."""
    keys: Annotated[str | None, Option(metavar="FOLDER")] = None
    """The folder of data keys; if unset beside the SQLite file, or `foltr-keys`."""
    federation: str = "default"
    """The federation's name: one level of the MQTT topics, one key in the database."""
    store: str | None = None
    """A device's or helper's SQLite file, of several devices a folder; if unset named after its owner."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of log lines."""
    log_format: Literal["text", "json"] = "text"
    """Format of log lines."""
    give_up_after_s: float | None = Field(default=None, gt=0, le=30 * 86_400)
    """Exit with code 3 after so many seconds without broker or database; unset retries for ever."""
    alive_file: Annotated[str | None, Option(metavar="FILE")] = None
    """A file that a working process touches at least every 30 seconds, for health checks."""
    standby: bool = False
    """Wait while another federator leads, and take over when it is gone; unset takes over at once."""
    metrics_port: int | None = Field(default=None, ge=0, le=65_535)
    """Port of the metrics for Prometheus; 0 takes a free one; unset shows none."""
    metrics_host: str = "127.0.0.1"
    """Address of that port. Anybody who reaches it may read the metrics, which name no client."""


class Api(Group):
    """The HTTP API and its page."""

    api_host: Annotated[str, Option("--host")] = "127.0.0.1"
    """The address that the HTTP API listens on, without TLS: for other machines use a proxy."""
    api_port: Annotated[int, Option("--port")] = Field(default=8680, ge=0, le=65_535)
    """Port of the HTTP API; 0 takes a free one."""
    api_tokens: Annotated[str, Option("--tokens", "FILE")] = "foltr-tokens.json"
    """The file of the HTTP API's tokens, as hashes."""
    api_connections_per_address: Annotated[int, Option("--connections-per-address", unit="connections")] = Field(
        default=100, ge=1, le=500
    )
    """Connections of one address to the HTTP API, unless it is a proxy's; at most 500 in all."""
    api_proxies: Annotated[str, Option("--proxies", "ADDRESSES")] = "127.0.0.1,::1"
    """Proxies before the HTTP API, as addresses or networks: it believes their X-Forwarded-For and -Proto."""


class Rounds(Group):
    """When a round ends, whom it asks, and how long its updates are kept."""

    min_clients: Annotated[int, Option(unit="clients")] = Field(default=2, ge=1, le=10_000_000)
    """A round with fewer contributing clients makes no model."""
    max_clients: Annotated[int, Option(unit="clients")] = Field(default=100, ge=1, le=10_000_000)
    """A round takes updates of at most so many clients."""
    min_time_s: float = Field(default=10.0, ge=0, le=30 * 86_400)
    """No round ends before this age; from then on it ends as soon as min_clients have contributed."""
    max_time_s: float = Field(default=600.0, gt=0, le=30 * 86_400)
    """The deadline of a round, from its opening."""
    pacing: Pacing = Pacing.DEADLINE
    """deadline: an update counts in its round. buffered: it may count in a later one."""
    over_selection: Annotated[float | None, Option(unit="share")] = Field(default=None, ge=0, le=100)
    """Deadline: ask max_clients * (1 + this) random clients; unset asks all."""
    staleness_limit: Annotated[int, Option(unit="model versions")] = Field(default=10, ge=0, le=100_000)
    """Buffered: how many model versions old an update's base may be."""
    updates_per_round: Annotated[int | None, Option(unit="updates")] = Field(default=None, ge=1, le=10_000_000)
    """Devices take turns instead of staying connected, as often as rounds of so many updates need; unset: they stay."""
    shortest_period_s: float = Field(default=60.0, ge=1, le=30 * 86_400)
    """With updates_per_round: the shortest time between a device's visits."""
    longest_period_s: float = Field(default=86_400.0, ge=1, le=30 * 86_400)
    """With updates_per_round: the longest time between a device's visits."""
    stop_after_round: Annotated[int | None, Option("--rounds", unit="round number")] = Field(
        default=None, ge=1, le=2**31 - 1
    )
    """Stop after this round; unset goes on for ever."""
    history_rounds: Annotated[int | None, Option(unit="rounds")] = Field(default=None, ge=1, le=2**31 - 1)
    """Keep updates of so many newest rounds, of older ones every unlearning_interval-th; unset keeps all."""


class Learning(Group):
    """What is learned, and how."""

    n_features: Annotated[int, Option("--features", unit="features")] = Field(default=136, ge=1, le=4_000_000)
    """Features of a document; fixed once the federation exists."""
    feature_schema: Annotated[str | None, Option("--schema", "FILE")] = None
    """The feature schema as JSON (`docs/features.md`); it gives n_features. Fixed once the federation exists."""
    initial_model: str | None = None
    """First weights of a linear ranker (`docs/features.md`); unset begins with zeros."""
    interactions: Annotated[int, Option(unit="interactions")] = Field(default=5, ge=1, le=100_000)
    """Lists in each update, exactly."""
    method: str = "fpdgd"
    """How devices learn and the federator aggregates (`foltr methods`); fixed once the federation exists."""
    method_parameters: Annotated[
        dict[str, str],
        Option("--set", "NAME=VALUE", "A parameter of the method; may be given several times"),
    ] = Field(default_factory=dict)
    """Parameters of the method as name=value,name=value; others keep their defaults."""
    exploration: str | None = None
    """How devices draw lists: none, share:0.1, swaps:0.05, interleaving, sampling, sampling:0.3; unset swaps:0.004."""
    ranker: Literal["linear", "neural"] = "linear"
    """The kind of ranker; fixed once the federation exists."""
    hidden: Annotated[int, Option(unit="hidden units")] = Field(default=64, ge=1, le=4096)
    """Hidden units of a neural ranker; fixed once the federation exists."""
    logging_policy: str | None = None
    """fedips, fedavg: the linear ranker that shows the lists, from `foltr models export`; unset: the newest."""

    _assignments = field_validator("method_parameters", mode="before")(_read_assignments)


class Defence(Group):
    """Protection against hostile clients and bad models."""

    aggregation: str = "mean"
    """How updates become one (`foltr rules`); for several secure sums the default is median."""
    byzantine: Annotated[float, Option(unit="clients or share")] = Field(default=0.2, ge=0, le=10_000_000)
    """Hostile clients that the rule must withstand: a number, or below 0.5 a share of the contributing ones."""
    aggregation_parameters: dict[str, str] = Field(default_factory=dict)
    """Parameters of the rule as name=value,name=value; others keep their defaults."""
    aggregation_fallback: str = "median"
    """The rule if too few contribute; abandon ends the round without a model."""
    anchor: bool = True
    """Devices vote on the newest model; if most find it worse than an older one, it is taken back."""
    evaluation: bool = True
    """Devices report how many of their lists were clicked and how far up; in `secure` the policy decides."""

    _assignments = field_validator("aggregation_parameters", mode="before")(_read_assignments)


class PrivacySettings(Group):
    """What the federator sees of updates."""

    privacy: Privacy | None = None
    """trusted: the federator sees every update. secure: it sees noised sums only; fixed. Unset: as its credentials say,
    else trusted."""


class Unlearning(Group):
    """How the model is made without forgotten clients. Their data is erased at once."""

    unlearning_strategy: Strategy = Strategy.RELEARN
    """How the model without a forgotten client is made (`docs/erasure.md`)."""
    unlearning_interval: Annotated[int, Option(unit="rounds")] = Field(default=10, ge=1, le=1_000_000)
    """A step covers so many stored rounds: fewer if a job had under 100 steps, more if relearn had over 150."""
    unlearn_every_s: float = Field(default=86_400.0, ge=0, le=30 * 86_400)
    """A job begins when the oldest erasure has waited so long, at most one job an hour."""
    unlearn_after: Annotated[int | None, Option(unit="clients")] = Field(default=None, ge=1, le=10_000_000)
    """A job begins earlier if so many wait; unset: only `unlearn_every_s` decides."""
    unlearning_deadline_s: float = Field(default=30 * 86_400.0, ge=0, le=30 * 86_400)
    """The deadline of an erasure, which the client's request names. A later one raises an alarm."""
    unlearning_may_reset: bool = False
    """A job may put the very first model in service; else it waits for the operator's order."""


class Devices(Group):
    """Simulated devices, as `foltr client run` runs them."""

    client_id: Annotated[str | None, Option("--id")] = None
    """The device's name; the host name if unset."""
    slots: Annotated[str | None, Option(metavar="FOLDER")] = None
    """A folder that replicas share: each takes a free slot with its name and store."""
    tokens: Annotated[str | None, Option(metavar="FOLDER")] = None
    """With `slots`: one-time tokens, with which replicas without a slot enrol themselves."""
    dataset: Annotated[str | None, Option("--data")] = None
    """A folder with train.txt and test.txt in LETOR format, or mslr-sample, or synthetic."""
    clicks: str = "navigational"
    """The simulated users' click model: perfect, navigational, informational, poison, pbm-1, fedips-1, ..."""
    seed: int = Field(default=1, ge=0, le=2**63 - 1)
    """Seed of everything simulated."""
