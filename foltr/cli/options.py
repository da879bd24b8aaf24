"""Options that several commands share; each names its environment variable in ``--help``."""

from pathlib import Path
from typing import Annotated

import typer

Broker = Annotated[
    str | None,
    typer.Option("--broker", envvar="FOLTR_BROKER_URL", help="mqtt[s]://[user:password@]host[:port]"),
]
Credentials = Annotated[
    str | None,
    typer.Option(
        "--credentials", envvar="FOLTR_CREDENTIALS", help="The file that `foltr enrol` wrote for this process"
    ),
]
Db = Annotated[
    str | None,
    typer.Option("--db", envvar="FOLTR_DB_URL", help="sqlite:///PATH or postgresql://user@host/name"),
]
Keys = Annotated[
    str | None,
    typer.Option(
        "--keys",
        envvar="FOLTR_KEYS",
        metavar="FOLDER",
        help="The data keys that updates are sealed with; default: beside the SQLite file, for PostgreSQL ./foltr-keys",
    ),
]
Federation = Annotated[
    str | None,
    typer.Option("--federation", envvar="FOLTR_FEDERATION", help="The federation's name"),
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many, the newest")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="Write the results to this file as JSON"),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        envvar="FOLTR_DATASET",
        help="A folder with train.txt and test.txt in LETOR format, or mslr-sample, or synthetic",
    ),
]
Clicks = Annotated[
    str | None,
    typer.Option(
        "--clicks",
        envvar="FOLTR_CLICKS",
        help="Click model: perfect, navigational, informational, poison, pbm-1, fedips-1, ...",
    ),
]
Interactions = Annotated[
    int | None,
    typer.Option("--interactions", envvar="FOLTR_INTERACTIONS", help="Interactions in one update"),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", envvar="FOLTR_SEED", help="Seed of everything simulated"),
]
GiveUpAfter = Annotated[
    float | None,
    typer.Option(
        "--give-up-after",
        envvar="FOLTR_GIVE_UP_AFTER_S",
        help="Exit with code 3 when the broker or the database is away for so many seconds; default: never",
    ),
]
Method = Annotated[
    str | None,
    typer.Option("--method", envvar="FOLTR_METHOD", help="How the federation learns; `foltr methods` lists them"),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method; may be given several times"),
]
Aggregation = Annotated[
    str | None,
    typer.Option(
        "--aggregation",
        envvar="FOLTR_AGGREGATION",
        help="Rule by which updates become one, e.g. mean or nnm+krum; `foltr rules` lists them",
    ),
]
Byzantine = Annotated[
    float | None,
    typer.Option(
        "--byzantine",
        envvar="FOLTR_BYZANTINE",
        help="Hostile clients to withstand: a number, or below 0.5 a share of those that contributed",
    ),
]
AggregationSet = Annotated[
    list[str] | None,
    typer.Option("--aggregation-set", metavar="NAME=VALUE", help="A parameter of the rule; may be given several times"),
]
Fallback = Annotated[
    str | None,
    typer.Option(
        "--fallback",
        envvar="FOLTR_AGGREGATION_FALLBACK",
        help="Rule where too few contributed for the first one, or abandon",
    ),
]
LoggingPolicy = Annotated[
    str | None,
    typer.Option(
        "--logging-policy",
        metavar="FILE",
        envvar="FOLTR_LOGGING_POLICY",
        help="fedips, fedavg: the linear ranker that shows the lists, as `foltr models export` writes it; "
        "default: the newest model",
    ),
]
Ranker = Annotated[
    str | None,
    typer.Option("--ranker", envvar="FOLTR_RANKER", help="linear or neural"),
]
Hidden = Annotated[
    int | None,
    typer.Option("--hidden", envvar="FOLTR_HIDDEN", help="Hidden units of a neural ranker"),
]
