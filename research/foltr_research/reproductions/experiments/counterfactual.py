"""Learning without exploration: rewards free of position and trust bias, doubly robust and safe ones, beside FPDGD.

Four kinds of users: those that the methods assume, with position bias alone and with trust bias; users who read by a
DBN, of which the methods know nothing; and users who like the irrelevant best.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from foltr_research.reproductions.checks import among, both, higher, leads_most, named, not_above
from foltr_research.reproductions.claims import HIGHER, RANGE, Check, Claim
from foltr_research.reproductions.experiment import Experiment, Scale, Table, Variant
from foltr_research.reproductions.experiments.fedips import logging_fraction
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.counterfactual.click_models import DBN, DBN3, TRUST, TRUST3
from foltr_research.simulation.counterfactual.methods import DR, PRPO, SAFE_DR, TRUST_IPS

POSITION, TRUSTING, READING, HOSTILE = "position bias", "trust bias", "DBN", "hostile"
LOGGING, FEDIPS, FPDGD = "logging policy", "fedips", "fpdgd"
# Clients and rounds.
_SIZE: Mapping[Scale, tuple[int, int]] = {"quick": (20, 25), "full": (500, 200)}
_INTERACTIONS, _EVALUATIONS, _MARGIN = 5, 5, 0.02
# So small that the first model is the logging policy.
_NO_RATE = 1e-9

RATES: Mapping[str, float] = {FEDIPS: 0.001, TRUST_IPS.name: 0.3, DR.name: 0.3, SAFE_DR.name: 0.3, PRPO.name: 0.3}
"""Of the devices, the defaults. 0.3 was the best for dr of 0.03, 0.1 and 0.3 on validation queries of MQ2008 with trust
bias and another seed."""


def _users(n_grades: int) -> Mapping[str, str]:
    """Return the click model of each kind of users."""
    trusting, reading = (TRUST3.name, DBN3.name) if n_grades == 3 else (TRUST.name, DBN.name)
    return {POSITION: "pbm-1", TRUSTING: trusting, READING: reading, HOSTILE: "poison"}


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:
    clients, rounds = _SIZE[scale]
    common: dict[str, Any] = {"clients": clients, "interactions": _INTERACTIONS}
    logged = {**common, "logging_fraction": logging_fraction(data.n_train_queries)}
    lasting = {"rounds": rounds, "eval_every": max(1, rounds // _EVALUATIONS)}
    found = []
    for kind, clicks in _users(data.n_grades).items():
        settings: dict[str, dict[str, Any]] = {
            LOGGING: {**logged, "method": DR.name, "parameters": {"learning_rate": _NO_RATE}, "rounds": 1},
            FPDGD: {**common, **lasting, "method": FPDGD},
        }
        for method, rate in RATES.items():
            assumed = {"serp_length": 10} if method == FEDIPS else {"trust": kind != POSITION}
            parameters = {"learning_rate": rate, **assumed}
            settings[method] = {**logged, **lasting, "method": method, "parameters": parameters}
        found += [
            Variant({"method": name, "clicks": kind}, SimulationConfig.read({**values, "clicks": clicks}))
            for name, values in settings.items()
        ]
    return found


def _of(method: str) -> dict[str, str]:
    return {"method": method}


def _above_each(worse: Sequence[str], better: str, users: Sequence[str]) -> Check:
    """Check that one method is above each of others for each of these kinds of users."""
    return among("clicks", users, both(*(named(one, higher("offline", _of(better), _of(one))) for one in worse)))


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="counterfactual",
        title="learning from a logging policy's lists: trust bias, doubly robust and safe methods",
        source="no figure; Vardasbi et al. 2020, Oosterhuis 2023 and Gupta et al. 2024 (arXiv 2407.19943), federated",
        setting="none: this is our own.",
        grid=_grid,
        seeds={"quick": 5, "full": 10},
        figures=(Figure("offline.png", "offline", ("method",), title="Learning without exploration: nDCG@10"),),
        tables=(
            Table("nDCG@10 on the test set after the last round", "offline", ("method",), against=_of(LOGGING)),
            Table("The same, against FedIPS", "offline", ("method",), against=_of(FEDIPS)),
        ),
        claims=(
            Claim(
                f"PRPO is less than {_MARGIN} nDCG@10 below the logging policy with each of four kinds of users",
                "Gupta et al. 2024: safe without assumptions about users",
                f"final nDCG@10 for each kind of users, logging policy minus PRPO: {RANGE} is below {_MARGIN}",
                not_above("offline", _of(LOGGING), _of(PRPO.name), _MARGIN),
            ),
            Claim(
                "If users are hostile, doubly robust learning falls below the logging policy, also with the bound "
                "of safe-dr",
                "Gupta et al. 2024: safe doubly robust learning can be detrimental in unexpected circumstances",
                f"final nDCG@10 with hostile users, logging policy against dr and against safe-dr: {HIGHER}",
                _above_each((DR.name, SAFE_DR.name), LOGGING, (HOSTILE,)),
            ),
            Claim(
                "With trust bias its correction beats FedIPS, and by more than with position bias alone",
                "Vardasbi et al. 2020",
                "final nDCG@10 with trust bias, trust-ips against fedips; and this lead minus that with position bias: "
                + HIGHER,
                both(
                    higher("offline", _of(TRUST_IPS.name), _of(FEDIPS), where={"clicks": TRUSTING}),
                    # The two begin from different models, which is a lead of its own.
                    leads_most(
                        "offline",
                        _of(TRUST_IPS.name),
                        _of(FEDIPS),
                        at={"clicks": TRUSTING},
                        than=({"clicks": POSITION},),
                    ),
                ),
            ),
            Claim(
                "From users as both assume them, doubly robust learning is better than the affine correction alone",
                "Oosterhuis 2023",
                f"final nDCG@10 with position and with trust bias, dr against trust-ips: {HIGHER}",
                among("clicks", (POSITION, TRUSTING), higher("offline", _of(DR.name), _of(TRUST_IPS.name))),
            ),
            Claim(
                "PRPO learns more than nothing from users as it assumes them",
                "Gupta et al. 2024",
                f"final nDCG@10 with position and with trust bias, PRPO against the logging policy: {HIGHER}",
                among("clicks", (POSITION, TRUSTING), higher("offline", _of(PRPO.name), _of(LOGGING))),
            ),
            Claim(
                "FPDGD, which explores, is above each of the methods that do not, for users who are not hostile",
                "ours",
                f"final nDCG@10 of FPDGD against {', '.join(RATES)}, for each kind of users but the hostile: {HIGHER}",
                _above_each(tuple(RATES), FPDGD, (POSITION, TRUSTING, READING)),
            ),
        ),
        differences=(
            (
                "The logging policy is LambdaRank on 1 % of the training queries, but on at least ten; users see its "
                "best list of ten. FedIPS starts from zeros, as published, the other methods from the logging policy."
            ),
            (
                "Methods know the bias of the first two kinds of users. With DBN and hostile users they assume trust "
                "bias; FedIPS always assumes position bias, which is all that it knows. FPDGD assumes nothing."
            ),
            (
                f"Learning rates of devices: {', '.join(f'{name} {rate:g}' for name, rate in RATES.items())}; 0.3 was "
                "chosen for dr, on other seeds. prpo clips at 0.8 and 1.25."
            ),
        ),
    ),
)
