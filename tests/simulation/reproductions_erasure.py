"""The bugs that were found where clients are forgotten, as `simulation.reproductions`."""

from simulation.scenario import Trust, reproduction

from foltr.broker.buffer import IntakeLimits
from foltr.core.protocol.states import Pacing, Strategy
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy

ERASURE_REPRODUCTIONS = (
    # A join came in one batch with the wish to be forgotten, and was told "forgotten" before the erasure was stored.
    # The device deletes what it has and takes its wish back from the broker; if the federator dies then, nobody erases.
    reproduction(
        "nobody is told that it is forgotten before it is stored",
        "told forgotten means erased",
        300,
        5,
        RoundPolicy(max_clients=1, max_time_s=5.0, over_selection=0.3),
        "forget_me 0 0.33, come_back 0 0.95",
        busy_s=2.0,
        unlearning=UnlearningPolicy(
            Strategy.FED_ERASER, min_coverage=0.0, every_s=5.0, swap_every_s=0.0, step_s=1.0, patience_s=0.0
        ),
        unmended="receipts do not wait for erasures",
    ),
    # A federator died after it had deleted something, and the next one did not purge the file.
    reproduction(
        "bytes that a federator left are purged by the next",
        "who is to be forgotten is, and is told",
        0,
        6,
        RoundPolicy(max_clients=1, max_time_s=15.0, over_selection=1.0),
        "forget_me 1 0.563, tick 3 0.724, crash_idle 4 0.18",
        busy_s=2.0,
        unlearning=UnlearningPolicy(
            Strategy.FED_ERASER, min_coverage=0.0, every_s=0.0, swap_every_s=0.0, step_s=1.0, patience_s=20.0
        ),
        unmended="bytes are left at a restart",
    ),
    # A federator ended with its last round while a purge was due, and did not wait for its turn.
    reproduction(
        "no bytes are left when the federation ends",
        "who is to be forgotten is, and is told",
        3,
        7,
        RoundPolicy(max_clients=5, max_time_s=40.0),
        "keep_nothing 3 0.638, revoke 4 0.028, tick 2 0.919, forget_me 0 0.176, interact 1 0.003, tick 6 0.441",
        trust=Trust.STAND_IN,
        busy_s=0.0,
        batch_limit=2,
        stop_after_round=3,
        unlearning=UnlearningPolicy(Strategy.ROLLBACK, every_s=5.0, swap_every_s=0.0),
        unmended="bytes are left at the end",
    ),
    # A device asked to be forgotten while the database was restored to before its enrolment. It was refused, and went
    # on as a client that did not join again: its updates were not signed with the key that the federation knew.
    reproduction(
        "who may not be forgotten joins the federator that was restored",
        "whoever takes part is heard",
        1598,
        4,
        RoundPolicy(min_clients=4, max_clients=4, max_time_s=15.0, pacing=Pacing.BUFFERED, staleness_limit=1),
        "tick 1 0.464, other_settings 0 0.274, come_back 0 0.535, forget_me 2 0.576, tick 1 0.774, restore_database 3 "
        "0.186, forget_me 0 0.823",
        trust=Trust.STAND_IN,
        unlearning=UnlearningPolicy(
            Strategy.FED_ERASER, min_coverage=0.9, every_s=5.0, swap_every_s=0.0, step_s=1.0, patience_s=0.0
        ),
        device_keeps=3,
    ),
    # The will of a forgotten device was turned away by a full intake, before the federator knew who was forgotten; its
    # name stayed at the broker.
    reproduction(
        "nothing of the forgotten is retained, though there was no room to hear of it",
        "who is to be forgotten is, and is told",
        50555,
        8,
        RoundPolicy(max_clients=8, min_time_s=2.0, max_time_s=5.0, pacing=Pacing.BUFFERED),
        "tick 1 0.382, forget_me 2 0.741, interact 6 0.072, tick 2 0.517, crash_idle 5 0.874, broker_crash 0 0.717",
        limits=IntakeLimits(max_messages=12, rate_per_s=5.0, burst=8),
        busy_s=0.0,
        batch_limit=2,
        unlearning=UnlearningPolicy(interval=3, every_s=5.0, swap_every_s=0.0, step_s=1.0, patience_s=20.0),
    ),
    # A job paused where the only device online was in quarantine, and was let out: nobody else ever joined.
    reproduction(
        "a job that paused in a quarantine goes on after it",
        "who is to be forgotten is, and is told",
        53334,
        4,
        RoundPolicy(max_clients=4, min_time_s=2.0, max_time_s=5.0),
        "interact 0 0.1, tick 0 0.7, partition 2 0.7, forget_me 1 0.9, forget_me 3 0.9, interact 0 0.036, stop 3 "
        "0.527, tick 0 0.975, quarantine 0 0.6, other_settings 2 0.99, tick 2 0.991, revoke 2 0.453",
        trust=Trust.STAND_IN,
        busy_s=0.0,
        unlearning=UnlearningPolicy(
            Strategy.FED_ERASER, interval=3, every_s=0.0, swap_every_s=0.0, step_s=5.0, patience_s=0.0
        ),
        device_backlog=2,
    ),
    # In a database of before its erasure a forgotten client came back, and was made a key. The one of after it, which
    # was restored then, told it that it is forgotten, and the key stayed.
    reproduction(
        "a key that was made for a forgotten name goes",
        "who is to be forgotten is, and is told",
        11176,
        5,
        RoundPolicy(max_clients=5, min_time_s=2.0, max_time_s=5.0, pacing=Pacing.BUFFERED, staleness_limit=3),
        "forget_me 4 0.831, tick 0 0.996, restore_database 2 0.835, come_back 4 0.638, restore_database 3 0.019, "
        "interact 0 0.1, tick 0 0.7, restore_database 2 0.148",
        trust=Trust.STAND_IN,
        batch_limit=2,
        unlearning=UnlearningPolicy(
            Strategy.ROLLBACK, interval=3, every_s=0.0, swap_every_s=0.0, step_s=1.0, patience_s=0.0
        ),
    ),
    # Each of 48 copies of forget requests by clients that never joined cost two transactions and the model read again,
    # all before the round that was due could end.
    reproduction(
        "copies of a forget request do not hold a round up",
        "a round ends at its deadline",
        1525713007,
        8,
        RoundPolicy(min_clients=6, max_clients=8, max_time_s=5.0),
        "tick 3 0.431, crash_before_commit 5 0.661, federator_heal 1 0.872, tick 2 0.667, forget_me 6 0.455, restart "
        "5 0.701, forget_me 4 0.943, forget_me 2 0.949, forget_me 3 0.184, second_federator 5 0.081, tick 2 0.97",
        busy_s=2.0,
        batch_limit=2,
        unlearning=UnlearningPolicy(Strategy.ROLLBACK, interval=1, every_s=0.0, swap_every_s=0.0, step_s=1.0),
        device_backlog=2,
    ),
)
