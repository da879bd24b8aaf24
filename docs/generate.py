"""Fill the generated parts of the documents from the code; ``--check`` only reports whether they are up to date."""

import inspect
import json
import re
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from filled import fill
from log_lines import find_log_lines, log_lines_table
from log_words import PARTS as LOG_WORDS
from sqlalchemy import Column

from foltr.api.app import make_app
from foltr.api.server_state import ServerState
from foltr.api.tokens import TokenFile
from foltr.cli.config import toml_text
from foltr.cli.fields import allowed_values, default_of
from foltr.cli.main import EXIT_FAILED, EXIT_SETTINGS, EXIT_UNAVAILABLE
from foltr.cli.settings import GROUPS
from foltr.core.erasure.states import TRANSITIONS as OF_ERASURES
from foltr.core.measures import Measures
from foltr.core.methods.bodies import BodySpec
from foltr.core.methods.registry import METHODS, body_spec, parameters_of, ranker_for, training_for
from foltr.core.protocol.codec import encode
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.fields import SEAL_BYTES
from foltr.core.protocol.receipts import DeviceReaction, ReceiptCode
from foltr.core.protocol.signed_tickets import issue_ticket
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import AbandonReason
from foltr.core.protocol.tickets import Ticket
from foltr.core.protocol.updates import DenseDelta, EvolutionPair, MaskedVector, ModelUpdate, PartDelta, UpdateBody
from foltr.core.secure.message_proof import MessageShape
from foltr.core.secure.norm_proof import proof_shape
from foltr.core.secure.plan import plan_noise, ratio_text
from foltr.core.user_files import FileKind
from foltr.edge_client.options import Experiment, Privacy, Ranking
from foltr.edge_client.search_ranker import SearchRanker
from foltr.federator.job import TRANSITIONS as OF_JOBS
from foltr.federator.measures import FederatorMeasures, WorkerMeasures
from foltr.federator.round import TRANSITIONS as OF_ROUNDS
from foltr.helper.measures import HelperMeasures
from foltr.storage.database import Database
from foltr.storage.tables import metadata
from foltr.storage.views import client_history, event_history, round_history

DOCS = Path(__file__).parent
# Groups of options with their arguments.
_GROUPS = (Ranking, Privacy, Experiment)

REACTION_WORDS = {
    None: "",
    DeviceReaction.SETTLE: "settles",
    DeviceReaction.SEND_AGAIN: "sends again",
    DeviceReaction.STOP: "stops",
}
EXIT_WORDS = {
    0: "done, or stopped by SIGTERM or Ctrl-C",
    EXIT_FAILED: "failed; standard error says why and what to do. `foltr doctor`: a problem. `foltr status`: something "
    "needs you. `foltr erasure list`: a deadline has passed",
    EXIT_SETTINGS: "a wrong setting, flag or file, or a database schema that is not up to date",
    EXIT_UNAVAILABLE: "broker, database or package index could not be reached. `foltr status`: down. "
    "`foltr client run`: a device took part in nothing, e.g. because it is not let in",
    130: "interrupted before it could stop in order",
}
ABANDON_WORDS = {
    AbandonReason.NO_UPDATES: "nobody contributed before the deadline",
    AbandonReason.TOO_FEW_CLIENTS: "fewer than `min_clients` did",
    AbandonReason.HELD_BACK: "secure: after rounds had failed, it was not announced before its deadline, and fewer "
    "than `min_clients` sent to it",
    AbandonReason.AGGREGATION_FAILED: "the updates could not be averaged, e.g. because their sum exceeds float32",
    AbandonReason.UNLEARNED: "a model without forgotten clients replaced the one it trained from",
    AbandonReason.MODEL_ROLLED_BACK: "most devices found its base worse than the anchor, whose weights are served "
    "again",
    AbandonReason.TOO_FEW_FOR_RULE: "fewer than the rule needs, and `aggregation_fallback` is `abandon`",
    AbandonReason.ONLY_SUSPECTS: "each update is of a client that `adaptive` suspects",
    AbandonReason.COHORTS_TOO_SMALL: "secure: too few clients were left for a sum, or sums for the rule",
    AbandonReason.HELPERS_SILENT: "secure: a helper said nothing useful for a minute",
    AbandonReason.HELPERS_REFUSED: "secure: a helper does not open the sum; the event says why",
    AbandonReason.CLIENT_WITHDRAWN: "secure: a client was forgotten, revoked or quarantined after helpers were asked "
    "to open its sum",
    AbandonReason.SUM_IMPLAUSIBLE: "secure: a sum is longer than its clients and the noise can make it: somebody lied",
    AbandonReason.VERIFIERS_DISAGREE: "secure: more than half of a cohort's norm proofs failed: a helper or most of "
    "the devices are at fault",
}

_VIEWS = (round_history, client_history, event_history)
# Tables of which a view shows columns under the same name; some names count something else there.
_SHOWN_BY = {"rounds": round_history, "updates": client_history, "events": event_history}
_COUNTED_OTHERWISE = {"n_updates", "n_interactions", "n"}
# Tables whose columns people seldom need: the federator's own state, and what views and commands show.
_INTERNAL = {
    "body_parts",
    "defence_records",
    "federations",
    "helper_answers",
    "ingest_batches",
    "ingest_workers",
    "ingestion",
    "leases",
    "orders",
    "policies",
    "round_aggregations",
    "round_evaluations",
    "round_sums",
    "round_tallies",
    "standbys",
    "stored_rounds",
    "trainings",
    "unlearning_resets",
    "update_fates",
}

# Sizes of the example messages of each method: MSLR's features.
N_FEATURES, HIDDEN = 136, 64
_IDENTITY: dict[str, Any] = {
    "federation": "default",
    "client_id": "device-001",
    "update_id": "0123456789abcdef" * 2,
}


def settings_table() -> str:
    """Return the settings, a table for each group."""
    parts = []
    for name, group in GROUPS.items():
        parts.append(f"### [{name}]\n\n{group.__doc__}\n\n| key | default | allowed | meaning |\n|---|---|---|---|")
        for key, field in group.model_fields.items():
            default = default_of(group, key)
            shown = "unset" if default is None else f"`{toml_text(default)}`"
            meaning = " ".join((field.description or "").split())
            parts[-1] += f"\n| `{key}` | {shown} | {allowed_values(field)} | {meaning} |"
    return "\n\n".join(parts)


def receipts_table() -> str:
    lines = ["| code | what it says | the device | event |", "|---|---|---|---|"]
    for code in ReceiptCode:
        kinds = ", ".join(f"`{kind}`" for kind in code.events)
        lines.append(f"| `{code}` | {code.explanation} | {REACTION_WORDS[code.reaction]} | {kinds} |")
    return "\n".join(lines)


def arguments_table() -> str:
    """Return the arguments of a `SearchRanker`, and of the groups for applications, from their docstrings."""
    lines = ["| argument | default | what it is |", "|---|---|---|"]
    for made, prefix in ((SearchRanker, ""), (Ranking, "Ranking."), (Privacy, "Privacy.")):
        meanings = _documented_arguments(made)
        for name, parameter in inspect.signature(made).parameters.items():
            chosen = parameter.default
            default = f"{type(chosen).__name__}()" if isinstance(chosen, _GROUPS) else _as_written(chosen)
            lines.append(f"| `{prefix}{name}` | `{default}` | {meanings[name]} |")
    return "\n".join(lines)


def _as_written(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else str(value)


def _documented_arguments(of: type) -> dict[str, str]:
    """Return a class' documented constructor arguments by name, except those that it documents together."""
    _, _, arguments = (inspect.getdoc(of) or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()).replace("``", "`") for name, text in entries}


def files_table() -> str:
    rows = (f"| {kind.text} | {kind.most_bytes // 1024:,} KiB |" for kind in FileKind)
    return "\n".join(["| file | at most |", "|---|---|", *rows])


def exits_table() -> str:
    return "\n".join(
        ["| code | meaning |", "|---|---|", *(f"| {code} | {words} |" for code, words in EXIT_WORDS.items())]
    )


def events_table() -> str:
    return "\n".join(
        ["| kind | what happened |", "|---|---|", *(f"| `{kind}` | {kind.meaning} |" for kind in EventKind)]
    )


def reasons_table() -> str:
    lines = ["| reason | meaning |", "|---|---|"]
    return "\n".join(lines + [f"| `{reason}` | {ABANDON_WORDS[reason]} |" for reason in AbandonReason])


def diagram(transitions: Mapping[tuple[StrEnum, StrEnum], StrEnum]) -> str:
    """Return a state machine's diagram from its table, starting at the state in the first line."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(transitions))[0]}"]
    lines += [f"    {state} --> {following}: {event}" for (state, event), following in transitions.items()]
    final = set(transitions.values()) - {state for state, _ in transitions}
    lines += [f"    {state} --> [*]" for state in sorted(final)]
    return "\n".join([*lines, "```"])


def trainings_table() -> str:
    """Each method: what is announced of it, and what its updates have."""
    lines = ["| method | `kind` | `body` | bytes | what else is announced |", "|---|---|---|---|---|"]
    for method, spec in METHODS.items():
        ranker = ranker_for("linear" if spec.only_ranker is None else spec.only_ranker.kind, N_FEATURES, HIDDEN)
        bodies = [_body(body_spec(training, ranker)) for training in _variants(method)]
        sizes = " or ".join(f"{_signed_bytes(body):,}" for body in sorted(bodies, key=_signed_bytes))
        fields = ", ".join(f"`{name}`" for name in parameters_of(method) if name != "serp_length")
        lines.append(f"| `{method}` | `{_training(method).kind}` | `{bodies[0].kind}` | {sizes} | {fields} |")
    return "\n".join(lines)


def masked_table() -> str:
    """How long masked updates are, with two helpers."""
    lines = ["| numbers | `norm_proof` | bytes of the signed update |", "|---|---|---|"]
    for dim in (N_FEATURES, 20_000):
        ticket = Ticket(
            **_IDENTITY,
            round=100,
            cohort=0,
            policy_hash=bytes(32),
            participation=20,
            digest=bytes(32),
            seals=[bytes(SEAL_BYTES)] * 2,
        )
        signed = issue_ticket(SigningKey(bytes(32)), ticket)
        shape = MessageShape(proof_shape(dim, 1), vote_weight=1, evaluation_weight=1, credit_weight=1)
        of_kinds = {"`none`": (dim, 0), "`l2`, votes, evaluation": (shape.n_summed, shape.n_proof)}
        for kind, (n_summed, n_proof) in of_kinds.items():
            body = MaskedVector(dim=n_summed, values=bytes(8 * n_summed), ticket=signed, proof=bytes(8 * n_proof))
            lines.append(f"| {dim:,} | {kind} | {_signed_bytes(body):,} |")
    return "\n".join(lines)


def _signed_bytes(body: UpdateBody) -> int:
    update = ModelUpdate(
        **_IDENTITY,
        round=100,
        base_version=99,
        after=495,
        through=500,
        base_hash=bytes(16),
        n_interactions=5,
        body=body,
    )
    return len(encode(update, "", 2**57, SigningKey(bytes(32))))


def _variants(method: str) -> list[Any]:
    """A method once for each value of a setting that has names for values, which may change what is sent."""
    fields = METHODS[method].training.model_fields
    named = [(name, value) for name in parameters_of(method) for value in get_args(fields[name].annotation)]
    found = [_training(method, **{name: value}) for name, value in named if isinstance(value, str)]
    return found or [_training(method)]


def _training(method: str, **settings: object) -> Any:
    required = {name: 10 for name, default in parameters_of(method).items() if default == "required"}
    return training_for(method, {**required, **settings}, interactions=5)


def _body(spec: BodySpec) -> UpdateBody:
    """Return a body of the largest size in this federation."""
    match spec.kind:
        case "dense":
            return DenseDelta(dim=spec.dim, values=bytes(4 * spec.n_values))
        case "part":
            return PartDelta(dim=spec.dim, start=spec.start, values=bytes(4 * spec.n_values))
        case "evolution":
            return EvolutionPair(seed=2**63 - 1, plus=0.5, minus=0.5)


def tables() -> str:
    """Return each view and table with its columns, then the internal tables, a line each."""
    parts = [_columns(f"{view.name} (view)", str(view.comment), view.columns) for view in _VIEWS]
    for table in metadata.sorted_tables:
        if table.name in _INTERNAL:
            continue
        about, shown = str(table.comment), set[str]()
        if (view := _SHOWN_BY.get(table.name)) is not None:
            shown = set(table.c.keys()) & set(view.c.keys()) - _COUNTED_OTHERWISE
            names = ", ".join(f"`{one.name}`" for one in table.c if one.name in shown - {"federation"})
            about += f". As in `{view.name}`: {names}"
        parts.append(_columns(f"{table.name} (table)", about, (one for one in table.columns if one.name not in shown)))
    rows = [f"| `{name}` | {metadata.tables[name].comment} |" for name in sorted(_INTERNAL)]
    parts.append("\n".join(["### Internal tables", "", "| table | what is in it |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _columns(title: str, about: str, columns: Iterable[Column[Any]]) -> str:
    """Return the section of a table. The page says once that rows have a federation, and that times are UTC."""
    said = [(one.name, str(one.comment).replace(", UTC", "")) for one in columns if one.name != "federation"]
    rows = [f"| `{name}` | {meaning} |" for name, meaning in said]
    return "\n".join([f"### {title}", "", about, "", "| column | meaning |", "|---|---|", *rows])


def plans_table() -> str:
    """Return the noise of plans for 200 rounds with epsilon 8 and delta a millionth, by two helpers, d = 136.

    Of `gamma` only plans that are not hopeless.
    """
    lines = [
        "| clients | mechanism | k | b | sigma / C_int | noise / update |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for clients in (100, 1_000, 10_000):
        planned = plan_noise(
            clients=clients, rounds=200, dim=136, epsilon=8.0, delta=1e-6, participations=20, helpers=2
        )
        lines += [
            f"| {clients:,} | `{one.mechanism}` | {one.participations} | {one.period} "
            f"| {one.sigma / one.bound:.2f} | {ratio_text(one.noise_to_update)} |"
            for one in planned
            if one.mechanism == "gaussian" or (clients > 100 and one.period > 1)
        ]
    return "\n".join(lines)


def routes_table() -> str:
    """Return the HTTP routes with their first sentences and roles."""
    with TemporaryDirectory() as folder:
        here = Path(folder)
        app = make_app(ServerState(Database(f"sqlite:///{here}/none.sqlite"), "mail", TokenFile(here / "tokens.json")))
    lines = ["| request | who | what |", "|---|---|---|"]
    for path, methods in app.openapi()["paths"].items():
        for method, told in methods.items():
            words = told["description"].partition("\n\n")[0].replace("\n", " ")
            lines.append(f"| `{method.upper()} {path}` | {told.get('x-who', 'anybody')} | {words} |")
    return "\n".join(lines)


def log_lines_section(part: str) -> str:
    """Return one of the tables of log lines. Raises ValueError if lines of the code are in no table."""
    found = find_log_lines(DOCS.parent)
    told = set().union(*LOG_WORDS.values()) | set(map(str, EventKind))
    if untold := sorted(found - told):
        raise ValueError(f"docs/log_words.py does not say what these lines mean: {', '.join(untold)}")
    return log_lines_table(found, LOG_WORDS[part])


def measures_table(measures: Measures) -> str:
    """Return the measures that a process shows to Prometheus."""
    lines = ["| metric | what it is |", "|---|---|"]
    for one in measures.all:
        label = "" if one.label is None else f"{{{one.label.name}}}"
        lines.append(f"| `{one.name}{label}` | {type(one).__name__.lower()}: {one.meaning} |")
    return "\n".join(lines)


SECTIONS = {
    "settings.md": {"settings": settings_table},
    "protocol.md": {"trainings": trainings_table, "masked": masked_table},
    "architecture.md": {
        "round": partial(diagram, OF_ROUNDS),
        "job": partial(diagram, OF_JOBS),
        "erasure": partial(diagram, OF_ERASURES),
    },
    "logs.md": {part: partial(log_lines_section, part) for part in LOG_WORDS},
    "errors.md": {
        "receipts": receipts_table,
        "events": events_table,
        "reasons": reasons_table,
        "exits": exits_table,
        "files": files_table,
    },
    "history.md": {"tables": tables},
    "api.md": {"routes": routes_table},
    "sdk.md": {"arguments": arguments_table},
    "privacy.md": {"plans": plans_table},
    "monitoring.md": {
        "federator": partial(measures_table, FederatorMeasures("mail")),
        "ingest": partial(measures_table, WorkerMeasures("mail")),
        "helper": partial(measures_table, HelperMeasures("mail", "north")),
    },
}


def main() -> int:
    stale = []
    for file, sections in SECTIONS.items():
        path = DOCS / file
        text = path.read_text()
        filled = text
        for name, generate in sections.items():
            filled = fill(filled, name, generate())
        if filled != text:
            stale.append(file)
            if "--check" not in sys.argv:
                path.write_text(filled)
    if stale and "--check" in sys.argv:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run: make docs\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
