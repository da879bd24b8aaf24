"""Converts what a round is computed with between settings, database and kernel."""

import json
import math
from datetime import datetime

import numpy as np
from pydantic import TypeAdapter, ValidationError

from foltr.core.aggregation.rule_spec import RuleSpec, read_rule
from foltr.core.errors import DataError
from foltr.core.methods.base import NextModel
from foltr.core.protocol.trainings import Training
from foltr.storage.records import NewAggregation, NewEvent, NewFate, RoundRow

_TRAININGS: TypeAdapter[Training] = TypeAdapter(Training)


def stored_parameters(rule: RuleSpec) -> str:
    """The parameters that are set, in the form of `foltr.storage.records.RoundOpening`."""
    values: dict[str, object] = dict(rule.parameters)
    if rule.beyond_bounds:
        values["beyond_bounds"] = True
    return json.dumps(values, sort_keys=True)


def stored_rule(row: RoundRow) -> RuleSpec:
    """The rule a round was opened with; SettingsError if this foltr does not know it."""
    return read_rule(
        row.aggregation,
        byzantine=row.byzantine,
        parameters=json.loads(row.aggregation_parameters),
        fallback=row.aggregation_fallback,
    )


def training_text(training: Training) -> str:
    """The settings of a method, in the form of `foltr.storage.federations`."""
    return training.model_dump_json()


def stored_training(text: str) -> Training:
    """Reverse `training_text`; DataError if this foltr does not know the settings."""
    try:
        return _TRAININGS.validate_json(text)
    except ValidationError as error:
        raise DataError(f"this foltr does not know the stored settings of a method: {text}") from error


def round_rng(seed: bytes, number: int) -> np.random.Generator:
    """The random source of a round's aggregation: the same after a restart, and secret.

    Args:
        seed: the federation's ``aggregation_seed``. A client that knew it could choose its bucket.
    """
    return np.random.default_rng(np.random.SeedSequence([int.from_bytes(seed), number]))


def new_aggregation(made: NextModel, *, of_sums: bool = False) -> NewAggregation | None:
    """Make the rows of what a rule did with a round or its sums; None for the plain mean."""
    report = made.report
    if report is None:
        return None
    # JSON has no infinity: a number that is not finite becomes null.
    parameters = {name: value if math.isfinite(value) else None for name, value in report.parameters.items()}
    fates = [NewFate(each.client_id, each.fate, each.share, each.score, each.reason) for each in report.fates]
    return NewAggregation(report.rule, json.dumps(parameters), report.fallback_reason, fates, of_sums=of_sums)


def found_events(made: NextModel, number: int, at: datetime) -> list[NewEvent]:
    """Return a rule's findings while it made a model, as events of the round."""
    findings = () if made.report is None else made.report.findings
    return [
        NewEvent(at, finding.kind, finding.detail, client_id=finding.client_id, round=number) for finding in findings
    ]
