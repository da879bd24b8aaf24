"""``foltr fit``: the first model of a federation, from logged data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from foltr.cli import options
from foltr.cli.output import check_folder, print_json, say


@dataclass(frozen=True)
class FitRecord:
    """What ``foltr fit --json`` prints."""

    out: str
    weights: dict[str, float]
    ndcg_at_10: float
    best_feature: str
    best_feature_ndcg_at_10: float
    n_held_out: int


def fit(
    data: Annotated[
        Path,
        typer.Option("--data", metavar="FILE", help="Logged data, as LETOR lines: a grade, and features as they are"),
    ],
    schema: Annotated[Path, typer.Option("--schema", metavar="FILE", help="The feature schema as JSON")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write, for initial_model")],
    held_out: Annotated[float, typer.Option(min=0.0, max=1.0, help="The share of queries to evaluate it on")] = 0.2,
    epochs: Annotated[int, typer.Option(min=1, max=100_000, help="How often each query is learned from")] = 50,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Decides which queries are held out, and the order of learning")
    ] = 1,
    json: options.Json = False,
) -> None:
    """Fit the first model of a federation to logged data, and report how it ranks queries it has not seen.

    It is a linear ranker, by LambdaRank. Where documents were graded by clicks on a list, it learns the list's own
    bias with them.
    """
    import numpy as np

    from foltr.core.data.letor import load_raw
    from foltr.core.methods.initial_models import InitialModel
    from foltr.core.protocol.schemas import FeatureSchema
    from foltr_research.simulation.fitting import fit_linear, scaled

    check_folder(out)
    features = FeatureSchema.read(schema)
    logged = scaled(load_raw(data, features.n_features), features)
    found = fit_linear(logged, np.random.default_rng(seed), held_out=held_out, epochs=epochs)
    model = InitialModel.of(features, found.weights)
    out.write_text(model.to_json())
    best = features.names[found.best_feature]
    if json:
        weights = dict(zip(features.names, found.weights.tolist(), strict=True))
        print_json(FitRecord(str(out), weights, found.ndcg, best, found.best_ndcg, found.n_held_out))
        return
    direction = "more" if found.rises else "less"
    say(f"nDCG@10 on {found.n_held_out} held-out queries: {found.ndcg:.4f}")
    say(f"  by the best single feature, {direction} of {best!r}: {found.best_ndcg:.4f}")
    say(
        f"wrote {features.n_features} weights to {out}; FOLTR_INITIAL_MODEL={out} foltr federator run --schema {schema}"
    )
