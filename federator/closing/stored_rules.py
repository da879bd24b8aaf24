"""What a round is computed with, between the settings, the database and the kernel: what is stored, and read again."""

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
    """The parameters that are set, as `foltr.storage.records.RoundOpening` has them."""
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
    """The settings of a method, as `foltr.storage.federations` has them."""
    return training.model_dump_json()


def stored_training(text: str) -> Training:
    """The settings that `training_text` made this of; DataError if this foltr does not know them."""
    try:
        return _TRAININGS.validate_json(text)
    except ValidationError as error:
        raise DataError(f"the stored settings of a method are none that this foltr knows: {text}") from error


def round_rng(seed: bytes, number: int) -> np.random.Generator:
    """What the aggregation of a round draws from: the same again after a restart, and known to nobody else.

    Args:
        seed: the federation's ``aggregation_seed``. A client that knew it could choose its bucket.
    """
    return np.random.default_rng(np.random.SeedSequence([int.from_bytes(seed), number]))


def new_aggregation(made: NextModel, *, of_sums: bool = False) -> NewAggregation | None:
    """The rows of what a rule made of a round, or of its sums; None for the plain mean."""
    report = made.report
    if report is None:
        return None
    # JSON has no infinity: what is not finite is null.
    parameters = {name: value if math.isfinite(value) else None for name, value in report.parameters.items()}
    fates = [NewFate(each.client_id, each.fate, each.share, each.score, each.reason) for each in report.fates]
    return NewAggregation(report.rule, json.dumps(parameters), report.fallback_reason, fates, of_sums=of_sums)


def found_events(made: NextModel, number: int, at: datetime) -> list[NewEvent]:
    """What a rule found out while it made a model, as events of the round."""
    findings = () if made.report is None else made.report.findings
    return [
        NewEvent(at, finding.kind, finding.detail, client_id=finding.client_id, round=number) for finding in findings
    ]
