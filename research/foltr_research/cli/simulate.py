"""``foltr simulate``: a federation in one process."""

import json as json_text
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from foltr.cli import options
from foltr.cli.fields import option_name, takes_fields
from foltr.cli.output import check_writable, console
from foltr.core.aggregation.vote_result import Verdict
from foltr.core.errors import SettingsError
from foltr.core.protocol.events import EventKind
from foltr_research.cli import simulation_options as given
from foltr_research.simulation.config import SimulationConfig, check_config

if TYPE_CHECKING:
    from foltr_research.simulation.checkpoint import CheckpointPlan
    from foltr_research.simulation.federated import Progress as Done
    from foltr_research.simulation.results import SimulationResult

# Without a terminal, a line at this interval shows that the command is alive.
_LINE_EVERY_S = 2.0
_FINDINGS_SHOWN = 10
_ROUNDS_SHOWN = 10
_NAMES_SHOWN = 5


@takes_fields(SimulationConfig, SimulationConfig.model_fields, given.OPTIONS)
def simulate(
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="Save the state to this file, to resume after a stop")
    ] = None,
    checkpoint_every: Annotated[
        int, typer.Option("--checkpoint-every", min=1, max=10_000_000, help="Rounds between checkpoints")
    ] = 100,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the file of --checkpoint")] = False,
    json: options.JsonFile = None,
    out: given.OutFile = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            "--runs",
            help="Write the last ranker's run and qrels in TREC format, and metrics by query, to this folder, "
            "replacing former ones",
        ),
    ] = None,
    list_names: Annotated[
        bool,
        typer.Option(
            "--list",
            help="List the names of methods, rules, attacks, clicks, metrics and data, with their packages",
        ),
    ] = False,
    **values: Any,
) -> None:
    """Run a federation in this process, without a network, and report how well it learns."""
    if list_names:
        _list_names()
        return
    from foltr_research.simulation.checkpoint import CheckpointPlan
    from foltr_research.simulation.clients.loading import check_data_name, load_experiment, population_for
    from foltr_research.simulation.run_files import check_runs, write_runs
    from foltr_research.simulation.sweeps.tables import check_folder, check_table_path

    config = given.read_config(values)
    check_config(config)
    check_data_name(config)
    if config.attack is not None and not config.attackers:
        raise SettingsError(f"--attack {config.attack}: it needs attackers; add --attackers and their number")
    check_writable(json, "--json", replaced=False)
    check_writable(checkpoint, "--checkpoint")
    if out is not None:
        check_table_path(out)
    if runs is not None:
        check_runs(config)
        check_folder(runs)
    if resume and checkpoint is None:
        raise SettingsError("--resume: it needs --checkpoint FILE, the file to resume from")
    plan = None if checkpoint is None else CheckpointPlan(checkpoint, checkpoint_every, resume)
    result = _run(config, plan)
    _report(result)
    _write(result, json, out)
    if runs is not None:
        # Loaded before, so cached.
        write_runs(runs, result, population_for(config, load_experiment(config)).tests)
        console.print(f"Runs: {runs}", soft_wrap=True, highlight=False)


def _list_names() -> None:
    from foltr_research.simulation.available import OURS, available

    kind = None
    for one in available():
        if one.kind != kind:
            kind = one.kind
            option = option_name(SimulationConfig, kind, given.OPTIONS)
            console.print(f"{option}:", soft_wrap=True, highlight=False, markup=False)
        source = "" if one.source == OURS else f" (of {one.source})"
        meaning = one.meaning if one.error is None else f"it cannot be used: {one.error}"
        parameters = ", ".join(f"{name}={default}" for name, default in one.parameters.items())
        parts = [f"  {one.name}{source}", meaning, parameters and f"parameters {parameters}"]
        console.print(": ".join(filter(None, parts)), soft_wrap=True, highlight=False, markup=False)


def _write(result: "SimulationResult", json: Path | None, out: Path | None) -> None:
    """Write the requested files. Without any, print the result."""
    from foltr_research.simulation.sweeps.tables import write_table

    problems, kept = [], False
    text = json_text.dumps(result.to_dict(), indent=2)
    if json is not None:
        try:
            json.write_text(f"{text}\n", "utf-8")
        except OSError as error:
            problems.append(f"{json}: the result cannot be written: {error.strerror or error}")
        else:
            kept = True
            console.print(f"Results: {json}", soft_wrap=True, highlight=False)
    if out is not None:
        try:
            write_table(out, result.rows(), {"config": result.config.model_dump(mode="json")})
        except SettingsError as error:
            problems.append(str(error))
        else:
            console.print(f"Rows: {out}", soft_wrap=True, highlight=False)
    if not problems:
        return
    if not kept:
        typer.echo(text)
    raise SettingsError(f"{'; '.join(problems)}; the result is {'in the other file' if kept else 'on standard output'}")


def _run(config: SimulationConfig, plan: "CheckpointPlan | None") -> "SimulationResult":
    with console.status("Loading the simulator and the data"):
        from foltr_research.simulation.clients.loading import load_experiment, population_for, unchanged_data
        from foltr_research.simulation.federated import run

        experiment = load_experiment(config)
        population = population_for(config, experiment)
    console.print(
        f"Data: {experiment.description}: {experiment.train.n_queries} training queries, "
        f"{experiment.test.n_queries} for evaluation, {experiment.train.n_features} features",
        soft_wrap=True,
        highlight=False,
    )
    console.print("Preparing the learner (compiled once, then cached)", highlight=False)
    with unchanged_data(config), _show_progress(config) as on_round, _stop_between_rounds(plan) as stop:
        return run(
            config,
            population,
            logging_data=experiment.train,
            on_round=on_round,
            checkpoint=plan,
            stop=stop,
            description=experiment.description,
        )


@contextmanager
def _show_progress(config: SimulationConfig) -> "Iterator[Callable[[Done], None]]":
    columns = (
        TextColumn("round {task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("nDCG@10 {task.fields[ndcg]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    printed_at = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        shown = progress.add_task("rounds", total=config.rounds, ndcg="-")

        def on_round(done: "Done") -> None:
            nonlocal printed_at
            progress.update(shown, completed=done.round, ndcg=f"{done.ndcg_at_10:.4f}")
            now = time.monotonic()
            if not console.is_terminal and (now - printed_at >= _LINE_EVERY_S or done.round in {0, done.rounds}):
                printed_at = now
                console.print(f"round {done.round}/{done.rounds}  nDCG@10 {done.ndcg_at_10:.4f}", highlight=False)

        yield on_round


@contextmanager
def _stop_between_rounds(plan: "CheckpointPlan | None") -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal came. Without a checkpoint SIGINT and SIGTERM end the command."""
    asked = False

    def ask(signum: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:  # the second signal ends it at once
            signal.default_int_handler(signum, frame)
        asked = True
        # Past the console: the signal may come while that writes, which it must not begin again.
        os.write(2, b"Stopping after this round\n")

    if plan is None:
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    except KeyboardInterrupt:
        console.print(
            f"Stopped; to continue, run the same command with --resume (checkpoint: {plan.path})",
            soft_wrap=True,
            highlight=False,
        )
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(result: "SimulationResult") -> None:
    config, data = result.config, result.data
    first, last = result.ndcg_at_10[0][1], result.final_ndcg
    lines = [
        f"nDCG@10: {first:.4f} before, {last:.4f} after {config.rounds} rounds",
        (
            f"  {data['test_queries_evaluated']} of {data['test_queries']} {config.evaluate_on} queries "
            "have a relevant document and count"
        ),
    ]
    if result.ndcg_at_10_global is not None and data["clients_evaluated"]:
        lines.append(
            f"  the mean over {data['clients_evaluated']} clients; of the shared ranker alone "
            f"{result.ndcg_at_10_global[-1][1]:.4f}"
        )
    lines += [f"{name}: {curve[0][1]:.4f} before, {curve[-1][1]:.4f} after" for name, curve in result.metrics.items()]
    if result.interactions:
        lines.append(f"Online nDCG@{result.online_k}, discounted over rounds: {result.online_ndcg:.2f}")
        lines.append(
            f"{result.interactions} interactions in {result.seconds_wall:.1f} s; "
            f"{result.interactions_per_second:,.0f} a second while learning"
        )
    if result.bytes_up:
        lines.append(f"Of one client in a round: {result.bytes_up} bytes up, {result.bytes_down} bytes down")
    if result.robustness is not None:
        lines += _defence_lines(result.robustness, config.aggregation, config.rounds)
    if result.privacy is not None:
        lines.append(f"Privacy: {result.privacy['summary']}")
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)


def _defence_lines(robustness: dict[str, Any], rule: str, n_rounds: int) -> list[str]:
    """Describe the rule, the attackers, and what the aggregation did, if anything."""
    hostile = robustness["attackers"]
    lines = [f"Rule: {rule}"]
    if rule == "adaptive":
        lines.append(describe_exclusions(robustness["findings"], n_rounds))
    if hostile:
        lines.append(f"Attackers: {hostile[0]}" + (f" to {hostile[-1]}" if len(hostile) > 1 else ""))
    if (proofs := robustness["norm_proofs"]) is not None:
        lines.append(f"Norm proofs: {proofs['checked']} checked, {proofs['failed']} failed")
    for told, name in (
        ("used the fallback", "fallback_rounds"),
        ("made no model", "abandoned_rounds"),
        ("had too few updates for the rule's promise", "beyond_bounds_rounds"),
    ):
        if robustness[name]:
            lines.append(f"Rounds that {told}: {robustness[name]}")
    for told, name in (
        ("dropped", "dropped"),
        ("clipped", "clipped"),
        ("refused before the rule saw them", "refused"),
    ):
        of = robustness[name]
        if of:
            honest = sum(count for client, count in of.items() if client not in hostile)
            lines.append(f"Updates {told}: {sum(of.values())}, of honest clients {honest}")
    for told, verdict in (("models taken back", Verdict.TAKE_BACK), ("the anchor moved", Verdict.MOVE_ANCHOR)):
        rounds = [str(made["round"]) for made in robustness["decisions"] if made["verdict"] == verdict]
        if rounds:
            more = f" and {len(rounds) - _ROUNDS_SHOWN} more" if len(rounds) > _ROUNDS_SHOWN else ""
            plural = "s" if len(rounds) > 1 else ""
            lines.append(f"Votes: {told} in round{plural} {', '.join(rounds[:_ROUNDS_SHOWN])}{more}")
    shown = robustness["findings"][:_FINDINGS_SHOWN]
    lines += [f"Round {found['round']}: {found['client'] or 'all'}: {found['detail']}" for found in shown]
    if len(robustness["findings"]) > _FINDINGS_SHOWN:
        lines.append(f"  and {len(robustness['findings']) - _FINDINGS_SHOWN} more findings, in the results' JSON")
    return lines


def describe_exclusions(findings: list[dict[str, Any]], n_rounds: int) -> str:
    """Describe in one line whom the adaptive rule excluded, and from which round on."""
    since: dict[str, int] = {}
    until: dict[str, int] = {}
    for found in findings:
        client, number = found["client"], found["round"]
        if client is not None and found["kind"] == EventKind.DEFENCE_RAISED:
            since.setdefault(client, number)
            until.pop(client, None)
        elif client is not None and found["kind"] == EventKind.DEFENCE_LOWERED:
            until[client] = number
    if not since:
        return f"adaptive found nobody in {n_rounds} rounds"
    told = [
        f"{client} from round {number}" + (f" to {until[client] - 1}" if client in until else "")
        for client, number in since.items()
    ]
    more = f" and {len(told) - _NAMES_SHOWN} more" if len(told) > _NAMES_SHOWN else ""
    return f"adaptive left out: {', '.join(told[:_NAMES_SHOWN])}{more}"
