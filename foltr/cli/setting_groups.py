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
    """How any process runs: what it connects to, as whom, and what it shows."""

    broker_url: Annotated[str, Option("--broker")] = "mqtt://127.0.0.1:1883"
    """mqtt[s]://[user:password@]host[:port] of the MQTT broker; if unset, the credentials' broker."""
    credentials: str | None = None
    """The file that `foltr device enrol` wrote for this process; for several devices a folder of such files."""
    role: Literal["all", "leader", "ingest"] = "all"
    """all: one process does everything. leader: it keeps rounds, and ingest workers, of role ingest, take updates."""
    allow_unsigned: bool = False
    """Run a federator without credentials: it accepts any client under any name and signs nothing."""
    db_url: Annotated[str, Option("--db")] = "sqlite:///foltr.sqlite"
    """sqlite:///PATH or postgresql://[user:password@]host[:port]/name."""
    keys: Annotated[str | None, Option(metavar="FOLDER")] = None
    """The folder of data keys that encrypt updates; if unset beside the SQLite file, or `foltr-keys`."""
    federation: str = "default"
    """The federation's name: one level of the MQTT topics, one key in the database."""
    store: str | None = None
    """A device's or a helper's SQLite file, or a folder for several devices; if unset named after its owner."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of log lines, which go to standard error."""
    log_format: Literal["text", "json"] = "text"
    """How log lines look."""
    give_up_after_s: float | None = Field(default=None, gt=0, le=30 * 86_400)
    """Exit with code 3 when the broker or the database is away for this many seconds; unset retries for ever."""
    alive_file: Annotated[str | None, Option(metavar="FILE")] = None
    """A file that a working process touches at least every 30 seconds; a health check looks at its age."""
    standby: bool = False
    """Wait while another federator leads, and take over when it is gone; unset: take over at once."""
    metrics_port: int | None = Field(default=None, ge=0, le=65_535)
    """The port of metrics for Prometheus; 0 takes a free one; unset shows none."""
    metrics_host: str = "127.0.0.1"
    """The address of that port. Anybody who reaches it can read the metrics, which name no client."""


class Api(Group):
    """The HTTP API and its page."""

    api_host: Annotated[str, Option("--host")] = "127.0.0.1"
    """The address that the HTTP API listens on. It has no TLS: beyond loopback put a proxy before it."""
    api_port: Annotated[int, Option("--port")] = Field(default=8680, ge=0, le=65_535)
    """The port that the HTTP API listens on; 0 takes a free one."""
    api_tokens: Annotated[str, Option("--tokens", "FILE")] = "foltr-tokens.json"
    """The file with the hashes of tokens that may use the HTTP API."""
    api_connections_per_address: Annotated[int, Option("--connections-per-address", unit="connections")] = Field(
        default=100, ge=1, le=500
    )
    """Connections to the HTTP API that one address may have, unless it is a proxy; all together may have 500."""
    api_proxies: Annotated[str, Option("--proxies", "ADDRESSES")] = "127.0.0.1,::1"
    """Reverse proxies before the HTTP API, as addresses or networks: it trusts their X-Forwarded-For and -Proto."""


class Rounds(Group):
    """When a round ends, whom it asks, and how long its updates are kept."""

    min_clients: Annotated[int, Option(unit="clients")] = Field(default=2, ge=1, le=10_000_000)
    """A round with fewer contributing clients makes no model."""
    max_clients: Annotated[int, Option(unit="clients")] = Field(default=100, ge=1, le=10_000_000)
    """A round ends at once when this many clients have contributed."""
    min_time_s: float = Field(default=10.0, ge=0, le=30 * 86_400)
    """After this many seconds a round ends as soon as min_clients have contributed."""
    max_time_s: float = Field(default=600.0, gt=0, le=30 * 86_400)
    """The deadline of a round, in seconds from its opening."""
    pacing: Pacing = Pacing.DEADLINE
    """deadline: an update counts in the round it was made for. buffered: a model from every max_clients updates."""
    over_selection: Annotated[float | None, Option(unit="share")] = Field(default=None, ge=0, le=100)
    """Deadline: ask max_clients * (1 + this) clients chosen at random; unset asks all."""
    staleness_limit: Annotated[int, Option(unit="model versions")] = Field(default=10, ge=0, le=100_000)
    """Buffered: how many model versions old the base of an update may be."""
    updates_per_round: Annotated[int | None, Option(unit="updates")] = Field(default=None, ge=1, le=10_000_000)
    """Devices connect only for visits, as often as rounds of this many updates need; unset: they stay connected. A
    round ends at once with so many updates, usually within half of max_time_s."""
    shortest_period_s: float = Field(default=60.0, ge=1, le=30 * 86_400)
    """With updates_per_round: the shortest time between visits of a device, in seconds."""
    longest_period_s: float = Field(default=86_400.0, ge=1, le=30 * 86_400)
    """With updates_per_round: the longest time between visits of a device, in seconds."""
    stop_after_round: Annotated[int | None, Option("--rounds", unit="round number")] = Field(
        default=None, ge=1, le=2**31 - 1
    )
    """Stop after this round number; unset goes on for ever."""
    history_rounds: Annotated[int | None, Option(unit="rounds")] = Field(default=None, ge=1, le=2**31 - 1)
    """Keep updates of this many newest rounds, and of every unlearning_interval-th older one; unset keeps all."""


class Learning(Group):
    """What is learned, and how."""

    n_features: Annotated[int, Option("--features", unit="features")] = Field(default=136, ge=1, le=4_000_000)
    """Features of a document; fixed once the federation exists."""
    feature_schema: Annotated[str | None, Option("--schema", "FILE")] = None
    """The feature schema as JSON (`docs/features.md`); it gives n_features. Fixed once the federation exists."""
    initial_model: str | None = None
    """The weights a new federation of a linear ranker begins with (`docs/features.md`); unset begins with zeros."""
    interactions: Annotated[int, Option(unit="interactions")] = Field(default=5, ge=1, le=100_000)
    """Interactions in one update."""
    method: str = "fpdgd"
    """How devices learn and the federator aggregates, as `foltr methods` lists; fixed once the federation exists."""
    method_parameters: Annotated[
        dict[str, str],
        Option("--set", "NAME=VALUE", "A parameter of the method; may be given several times"),
    ] = Field(default_factory=dict)
    """Parameters of the method as name=value,name=value, learning_rate say; those not named keep its defaults."""
    exploration: str | None = None
    """How devices draw lists: none, share:0.1, swaps:0.1, interleaving, sampling or sampling:0.3; unset swaps:0.1."""
    ranker: Literal["linear", "neural"] = "linear"
    """The kind of ranker; fixed once the federation exists."""
    hidden: Annotated[int, Option(unit="hidden units")] = Field(default=64, ge=1, le=4096)
    """Hidden units of a neural ranker; fixed once the federation exists."""
    logging_policy: str | None = None
    """fedips, fedavg: the linear ranker that shows the lists, as `foltr models export` writes it; unset: the newest."""

    _assignments = field_validator("method_parameters", mode="before")(_read_assignments)


class Defence(Group):
    """Protection against harmful clients and models."""

    aggregation: str = "mean"
    """The rule that aggregates updates, as `foltr rules` lists; for several secure sums the default is median."""
    byzantine: Annotated[float, Option(unit="clients or share")] = Field(default=0.2, ge=0, le=10_000_000)
    """Hostile clients that the rule withstands: a number, or below 0.5 a share of those that contributed."""
    aggregation_parameters: dict[str, str] = Field(default_factory=dict)
    """Parameters of the rule as name=value,name=value; those not named keep the rule's defaults."""
    aggregation_fallback: str = "median"
    """The rule for rounds with too few clients for the first one; abandon ends the round without a model."""
    anchor: bool = True
    """Devices compare the newest model with an older one and vote; one that most find worse is rolled back."""
    evaluation: bool = True
    """Devices report how many of their lists were clicked and how far up; with `secure` the policy decides."""

    _assignments = field_validator("aggregation_parameters", mode="before")(_read_assignments)


class PrivacySettings(Group):
    """What the federator sees of updates."""

    privacy: Privacy | None = None
    """trusted: the federator sees every update. secure: it sees only noised sums, by the policy in its credentials.
    Fixed. Unset: what the operator's folder was made for, which its credentials say; else trusted."""


class Unlearning(Group):
    """When and how the model is made without clients that were forgotten; their data is erased at once."""

    unlearning_strategy: Strategy = Strategy.RELEARN
    """How the model is made without a client that was forgotten: `docs/erasure.md`."""
    unlearning_interval: Annotated[int, Option(unit="rounds")] = Field(default=10, ge=1, le=1_000_000)
    """Stored rounds for each step of a job: fewer if a job had under 100 steps, more if one of relearn had over 150."""
    unlearn_every_s: float = Field(default=86_400.0, ge=0, le=30 * 86_400)
    """A job begins once the oldest erasure request has waited this many seconds; at most one an hour."""
    unlearn_after: Annotated[int | None, Option(unit="clients")] = Field(default=None, ge=1, le=10_000_000)
    """A job begins earlier once this many requests wait; unset: only `unlearn_every_s` decides."""
    unlearning_deadline_s: float = Field(default=30 * 86_400.0, ge=0, le=30 * 86_400)
    """An erasure that takes longer, in seconds, raises an alarm; the client's request names this day."""
    unlearning_may_reset: bool = False
    """A job that can only put the first model in service does so by itself; else it waits for the operator's order."""


class Devices(Group):
    """Simulated devices, as `foltr client run` runs them."""

    client_id: Annotated[str | None, Option("--id")] = None
    """The device's name; the host name if unset."""
    slots: Annotated[str | None, Option(metavar="FOLDER")] = None
    """A folder shared by replicas of one device service: each takes a free slot, with its name and its store."""
    tokens: Annotated[str | None, Option(metavar="FOLDER")] = None
    """With `slots`: one-time tokens; if no slot is free, a replica enrols itself with an unused one."""
    dataset: Annotated[str | None, Option("--data")] = None
    """A folder with train.txt and test.txt in LETOR format, or mslr-sample, or synthetic."""
    clicks: str = "navigational"
    """The simulated users' click model: perfect, navigational, informational, poison, pbm-1, fedips-1, ..."""
    seed: int = Field(default=1, ge=0, le=2**63 - 1)
    """Seed of everything simulated."""
