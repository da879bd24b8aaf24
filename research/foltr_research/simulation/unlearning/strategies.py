"""Ways to forget a client by name: those of the service, and those of the newest study of them.

The study (Tao, Wang, Yang and Zuccon, SIGIR 2025, arXiv 2505.12791) has retraining, FedEraser, fine-tuning, projected
gradient ascent and FedRemove. Rollback and long steps are ours.
"""

from collections.abc import Callable, Mapping

from foltr.core.protocol.states import Strategy
from foltr.core.unlearning.schedule import Schedule
from foltr_research.simulation.unlearning.departure import UnlearningSimulation
from foltr_research.simulation.unlearning.history import History
from foltr_research.simulation.unlearning.kept_interactions import KEPT_INTERACTIONS
from foltr_research.simulation.unlearning.rounds import Trained

Way = Callable[[UnlearningSimulation, History], Trained]

INTERVAL, LOCAL_INTERACTIONS = 10, 3
"""Of FedEraser, as in the thesis."""
LIVE_ROUNDS = 100
"""After removal, or instead of any other unlearning: as many as FedEraser has steps in 1,000 rounds."""
ASCENTS, RECOVERY = 20, 80
"""Of projected gradient ascent: together as many."""

AGAIN, MIDDLE = "retrain", "retrain from the middle"
ERASER, ERASER_LOG = "fed_eraser", "fed_eraser, log"
ROLLBACK, ROLLBACK_LOG = "rollback", "rollback, log"
LONG, LONG_LOG = "long steps", "long steps, log"
REMOVE, REMOVE_LIVE, REMOVE_LAST = "fed_remove", "fed_remove, then rounds", "fed_remove, models"
FINE_TUNING, ASCENT = "fine-tuning", "gradient ascent"


def federate(simulation: UnlearningSimulation) -> History:
    """Run the federation, and keep what every way to forget needs."""
    n_interactions = max(client.n_interactions for client in simulation.population.clients)
    return simulation.federate(record_last=-(-KEPT_INTERACTIONS // n_interactions), keep_updates=True)


def _schedule(strategy: Strategy) -> Schedule:
    """As in the thesis: the interval is used unchanged, while the service would make at least 100 steps."""
    return Schedule(strategy, INTERVAL, LOCAL_INTERACTIONS, least_steps=1)


def _retrain(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.retrain(history)


def _retrain_from_the_middle(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.relearn(history, 1)


def _eraser(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.unlearn(history, _schedule(Strategy.FED_ERASER))


def _eraser_of_log(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.unlearn(history, _schedule(Strategy.FED_ERASER), interactions="drawn")


def _rollback(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.unlearn(history, _schedule(Strategy.ROLLBACK))


def _rollback_of_log(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.unlearn(history, _schedule(Strategy.ROLLBACK), interactions="drawn")


def _long_steps(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.relearn(history, INTERVAL)


def _long_steps_of_log(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.relearn(history, INTERVAL, "drawn")


def _remove(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.remove(history)


def _remove_then_live(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.fine_tune(history, simulation.remove(history), LIVE_ROUNDS)


def _remove_models(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.remove_last(history)


def _fine_tune(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.fine_tune(history, history.trained.at_no_cost(), LIVE_ROUNDS)


def _ascend(simulation: UnlearningSimulation, history: History) -> Trained:
    return simulation.fine_tune(history, simulation.ascend(history, ASCENTS), RECOVERY)


WAYS: Mapping[str, Way] = {
    AGAIN: _retrain,
    ERASER: _eraser,
    ERASER_LOG: _eraser_of_log,
    LONG: _long_steps,
    LONG_LOG: _long_steps_of_log,
    REMOVE: _remove,
    REMOVE_LIVE: _remove_then_live,
    REMOVE_LAST: _remove_models,
    FINE_TUNING: _fine_tune,
    ASCENT: _ascend,
}
"""Ways to forget any client; the history is that of `federate`."""

LATE_WAYS: Mapping[str, Way] = {MIDDLE: _retrain_from_the_middle, ROLLBACK: _rollback, ROLLBACK_LOG: _rollback_of_log}
"""Ways to forget a client that joined after the first model; the other ways then start there anyway."""
