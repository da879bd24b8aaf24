"""The bugs that were found where clients are forgotten, as `simulation.reproductions`."""

from simulation.scenario import Operation, Reproduction, Scenario, Step, Trust

from foltr.broker.buffer import IntakeLimits
from foltr.core.protocol.states import Pacing, Strategy
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy

ERASURE_REPRODUCTIONS = (
    # A join came in one batch with the wish to be forgotten, and was told "forgotten" before the erasure was stored.
    # The device deletes what it has and takes its wish back from the broker; if the federator dies then, nobody erases.
    Reproduction(
        "nobody is told that it is forgotten before it is stored",
        "told forgotten means erased",
        Scenario(
            300,
            5,
            RoundPolicy(max_clients=1, max_time_s=5.0, over_selection=0.3),
            (Step(Operation.FORGET_ME, 0, 0.33), Step(Operation.COME_BACK, 0, 0.95)),
            busy_s=2.0,
            unlearning=UnlearningPolicy(
                Strategy.FED_ERASER, min_coverage=0.0, every_s=5.0, swap_every_s=0.0, step_s=1.0, patience_s=0.0
            ),
        ),
        unmended="receipts do not wait for erasures",
    ),
    # A federator died after it had deleted something, and the next one did not purge the file.
    Reproduction(
        "bytes that a federator left are purged by the next",
        "who is to be forgotten is, and is told",
        Scenario(
            0,
            6,
            RoundPolicy(max_clients=1, max_time_s=15.0, over_selection=1.0),
            (
                Step(Operation.FORGET_ME, 1, 0.563),
                Step(Operation.TICK, 3, 0.724),
                Step(Operation.CRASH_IDLE, 4, 0.18),
            ),
            trust=Trust.ANYONE,
            busy_s=2.0,
            unlearning=UnlearningPolicy(
                Strategy.FED_ERASER, min_coverage=0.0, every_s=0.0, swap_every_s=0.0, step_s=1.0, patience_s=20.0
            ),
        ),
        unmended="bytes are left at a restart",
    ),
    # A federator ended with its last round while a purge was due, and did not wait for its turn.
    Reproduction(
        "no bytes are left when the federation ends",
        "who is to be forgotten is, and is told",
        Scenario(
            3,
            7,
            RoundPolicy(max_clients=5, max_time_s=40.0),
            (
                Step(Operation.KEEP_NOTHING, 3, 0.638),
                Step(Operation.REVOKE, 4, 0.028),
                Step(Operation.TICK, 2, 0.919),
                Step(Operation.FORGET_ME, 0, 0.176),
                Step(Operation.INTERACT, 1, 0.003),
                Step(Operation.TICK, 6, 0.441),
            ),
            trust=Trust.STAND_IN,
            busy_s=0.0,
            batch_limit=2,
            stop_after_round=3,
            unlearning=UnlearningPolicy(Strategy.ROLLBACK, every_s=5.0, swap_every_s=0.0),
        ),
        unmended="bytes are left at the end",
    ),
    # A device asked to be forgotten while the database was restored to before its enrolment. It was refused, and went
    # on as a client that did not join again: its updates were not signed with the key that the federation knew.
    Reproduction(
        "who may not be forgotten joins the federator that was restored",
        "whoever takes part is heard",
        Scenario(
            1598,
            4,
            RoundPolicy(4, 4, 0.0, 15.0, pacing=Pacing.BUFFERED, staleness_limit=1),
            (
                Step(Operation.TICK, 1, 0.464),
                Step(Operation.OTHER_SETTINGS, 0, 0.274),
                Step(Operation.COME_BACK, 0, 0.535),
                Step(Operation.FORGET_ME, 2, 0.576),
                Step(Operation.TICK, 1, 0.774),
                Step(Operation.RESTORE_DATABASE, 3, 0.186),
                Step(Operation.FORGET_ME, 0, 0.823),
            ),
            trust=Trust.STAND_IN,
            unlearning=UnlearningPolicy(
                Strategy.FED_ERASER, min_coverage=0.9, every_s=5.0, swap_every_s=0.0, step_s=1.0, patience_s=0.0
            ),
            device_keeps=3,
        ),
    ),
    # The will of a forgotten device was turned away by a full intake, before the federator knew who was forgotten; its
    # name stayed at the broker.
    Reproduction(
        "nothing of the forgotten is retained, though there was no room to hear of it",
        "who is to be forgotten is, and is told",
        Scenario(
            50555,
            8,
            RoundPolicy(1, 8, 2.0, 5.0, pacing=Pacing.BUFFERED),
            (
                Step(Operation.TICK, 1, 0.382),
                Step(Operation.FORGET_ME, 2, 0.741),
                Step(Operation.INTERACT, 6, 0.072),
                Step(Operation.TICK, 2, 0.517),
                Step(Operation.CRASH_IDLE, 5, 0.874),
                Step(Operation.BROKER_CRASH, 0, 0.717),
            ),
            limits=IntakeLimits(max_messages=12, rate_per_s=5.0, burst=8),
            busy_s=0.0,
            batch_limit=2,
            unlearning=UnlearningPolicy(
                Strategy.RELEARN, interval=3, every_s=5.0, swap_every_s=0.0, step_s=1.0, patience_s=20.0
            ),
        ),
    ),
    # A job paused where the only device online was in quarantine, and was let out: nobody else ever joined.
    Reproduction(
        "a job that paused in a quarantine goes on after it",
        "who is to be forgotten is, and is told",
        Scenario(
            53334,
            4,
            RoundPolicy(1, 4, 2.0, 5.0),
            (
                Step(Operation.INTERACT, 0, 0.1),
                Step(Operation.TICK, 0, 0.7),
                Step(Operation.PARTITION, 2, 0.7),
                Step(Operation.FORGET_ME, 1, 0.9),
                Step(Operation.FORGET_ME, 3, 0.9),
                Step(Operation.INTERACT, 0, 0.036),
                Step(Operation.STOP, 3, 0.527),
                Step(Operation.TICK, 0, 0.975),
                Step(Operation.QUARANTINE, 0, 0.6),
                Step(Operation.OTHER_SETTINGS, 2, 0.99),
                Step(Operation.TICK, 2, 0.991),
                Step(Operation.REVOKE, 2, 0.453),
            ),
            trust=Trust.STAND_IN,
            busy_s=0.0,
            unlearning=UnlearningPolicy(
                Strategy.FED_ERASER, interval=3, every_s=0.0, swap_every_s=0.0, step_s=5.0, patience_s=0.0
            ),
            device_backlog=2,
        ),
    ),
    # In a database of before its erasure a forgotten client came back, and was made a key. The one of after it, which
    # was restored then, told it that it is forgotten, and the key stayed.
    Reproduction(
        "a key that was made for a forgotten name goes",
        "who is to be forgotten is, and is told",
        Scenario(
            11176,
            5,
            RoundPolicy(1, 5, 2.0, 5.0, pacing=Pacing.BUFFERED, staleness_limit=3),
            (
                Step(Operation.FORGET_ME, 4, 0.831),
                Step(Operation.TICK, 0, 0.996),
                Step(Operation.RESTORE_DATABASE, 2, 0.835),
                Step(Operation.COME_BACK, 4, 0.638),
                Step(Operation.RESTORE_DATABASE, 3, 0.019),
                Step(Operation.INTERACT, 0, 0.1),
                Step(Operation.TICK, 0, 0.7),
                Step(Operation.RESTORE_DATABASE, 2, 0.148),
            ),
            trust=Trust.STAND_IN,
            batch_limit=2,
            unlearning=UnlearningPolicy(
                Strategy.ROLLBACK, interval=3, every_s=0.0, swap_every_s=0.0, step_s=1.0, patience_s=0.0
            ),
        ),
    ),
    # Each of 48 copies of forget requests by clients that never joined cost two transactions and the model read again,
    # all before the round that was due could end.
    Reproduction(
        "copies of a forget request do not hold a round up",
        "a round ends at its deadline",
        Scenario(
            1525713007,
            8,
            RoundPolicy(6, 8, 0.0, 5.0),
            (
                Step(Operation.TICK, 3, 0.431),
                Step(Operation.CRASH_BEFORE_COMMIT, 5, 0.661),
                Step(Operation.FEDERATOR_HEAL, 1, 0.872),
                Step(Operation.TICK, 2, 0.667),
                Step(Operation.FORGET_ME, 6, 0.455),
                Step(Operation.RESTART, 5, 0.701),
                Step(Operation.FORGET_ME, 4, 0.943),
                Step(Operation.FORGET_ME, 2, 0.949),
                Step(Operation.FORGET_ME, 3, 0.184),
                Step(Operation.SECOND_FEDERATOR, 5, 0.081),
                Step(Operation.TICK, 2, 0.97),
            ),
            trust=Trust.ANYONE,
            busy_s=2.0,
            batch_limit=2,
            unlearning=UnlearningPolicy(Strategy.ROLLBACK, interval=1, every_s=0.0, swap_every_s=0.0, step_s=1.0),
            device_backlog=2,
        ),
    ),
)
