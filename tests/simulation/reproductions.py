"""Every bug that the simulation found: the shortest scenario that showed it.

A new one comes from the failing test, which prints it.
"""

from simulation.scenario import Trust, reproduction

from foltr.broker.buffer import IntakeLimits
from foltr.core.protocol.states import Pacing, Strategy
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy

REPRODUCTIONS = (
    # The federator answered "revoked" to an update that counted before: its clicks would count again.
    reproduction(
        "a revoked device is told what counted",
        "a click counts once",
        167,
        6,
        RoundPolicy(min_clients=5, max_clients=5, min_time_s=1.6666666666666667, max_time_s=5.0),
        "tick 1 0.87, interact 0 0.01, crash_before_commit 3 0.724, tick 2 0.991, revoke 4 0.626",
        trust=Trust.STAND_IN,
    ),
    # A full buffer said late, the device trained again, and a copy still on its way counted in the next filling.
    # The same scenario showed it for a client's second update to a buffer.
    reproduction(
        "what a full buffer turns away does not count later",
        "a click counts once",
        224,
        4,
        RoundPolicy(min_clients=3, max_clients=3, max_time_s=5.0, pacing=Pacing.BUFFERED, staleness_limit=2),
        "tick 2 0.596, crash_in_round 3 0.952, tick 1 0.671, restart 2 0.908, interact 0 0.364, tick 2 0.367, tick 1 "
        "0.41, interact 1 0.278, federator_partition 1 0.152, tick 2 0.593",
        batch_limit=2,
    ),
    # The sequence numbers of announcements came from a clock: set back, every device took the federator for a replay.
    # It shows if the federator published more before than it does until the end.
    reproduction(
        "a federator whose clock was set back is heard",
        "a new federator is believed",
        0,
        8,
        RoundPolicy(max_clients=1, max_time_s=40.0),
        "interact 3 0.028, tick 7 0.974, " * 8 + "crash_idle 0 0.5",
        trust=Trust.STAND_IN,
        unmended="announcements begin anew at a restart",
    ),
    # An order came in one batch with the update that filled the round, and was stored after collecting had stopped.
    reproduction(
        "an order may come with the update that ends the round",
        "a federator keeps its own protocol",
        55,
        6,
        RoundPolicy(max_clients=1, max_time_s=40.0, pacing=Pacing.BUFFERED, staleness_limit=1),
        "tick 2 0.741, interact 2 0.169, set_deadline 0 0.571",
        trust=Trust.STAND_IN,
        busy_s=2.0,
    ),
    # The clock was set back since the round opened, so its new deadline lay before its opening.
    reproduction(
        "a deadline may be set after the clock was set back",
        "a federator keeps its own protocol",
        125,
        6,
        RoundPolicy(min_clients=2, max_clients=6, min_time_s=13.333333333333334, max_time_s=40.0, over_selection=1.0),
        "clock_skew 1 0.212, stop 2 0.45, tick 0 0.716, set_deadline 0 0.869, restart 3 0.608",
        trust=Trust.STAND_IN,
        busy_s=0.0,
    ),
    # The deadline passed during a commit, and the round ended before what had come in time was looked at.
    reproduction(
        "what comes during a commit is in time",
        "in time is not late",
        205,
        4,
        RoundPolicy(min_clients=3, max_clients=4, max_time_s=5.0),
        "duplicate 3 0.735, enrol_anew 1 0.155, crash_before_commit 0 0.505, reorder 3 0.732, tick 3 0.685, restart 3 "
        "0.176, tick 2 0.19, tick 1 0.824, interact 2 0.453",
        trust=Trust.STAND_IN,
        unmended="a round ends by a later clock",
    ),
    # A quorum was reached in one batch while older updates waited for the next: the round ended without them.
    reproduction(
        "what waits while a quorum is reached is in time",
        "in time is not late",
        0,
        8,
        RoundPolicy(max_clients=6, min_time_s=13.333333333333334, max_time_s=40.0),
        "second_federator 6 0.936",
        busy_s=2.0,
        batch_limit=2,
        unmended="a round ends by a later clock",
    ),
    # An order set the deadline into the past, and the answer to an update was "late" before the round's end was
    # stored; a second order moved the deadline on, and a copy of the same update counted.
    reproduction(
        "late is only said of a round whose end is stored",
        "a click counts once",
        6958,
        6,
        RoundPolicy(min_clients=6, max_clients=6, max_time_s=40.0),
        "tick 2 0.78, interact 4 0.103, set_deadline 2 0.241, crash_idle 0 0.252, tick 0 0.831, tick 4 0.814, "
        "set_deadline 1 0.713",
        trust=Trust.STAND_IN,
        busy_s=2.0,
    ),
    # The federation's last round was abandoned; the answer to a copy of an update in it was "duplicate".
    reproduction(
        "a copy of what an abandoned last round took back counts nothing",
        "accepted means stored",
        2604,
        8,
        RoundPolicy(
            min_clients=8,
            max_clients=8,
            min_time_s=1.6666666666666667,
            max_time_s=5.0,
            pacing=Pacing.BUFFERED,
            staleness_limit=1,
        ),
        "tick 1 0.112, interact 2 0.353, federator_heal 4 0.757, tick 2 0.807, everybody_away 0 0.913, come_back 5 "
        "0.563, tick 4 0.864, interact 3 0.183",
        busy_s=2.0,
        batch_limit=2,
        stop_after_round=4,
        unlearning=UnlearningPolicy(every_s=0.0, swap_every_s=0.0, step_s=1.0, patience_s=0.0),
        device_backlog=2,
    ),
    # An update that waits is signed again, with a newer enrolment's key, and a copy of that came before the join.
    reproduction(
        "an update by a key that is not known yet has not come",
        "in time is not late",
        85752,
        7,
        RoundPolicy(min_clients=2, max_clients=7, max_time_s=5.0, pacing=Pacing.BUFFERED, staleness_limit=2),
        "device_disk_full 0 0.401, partition 1 0.072, tick 6 0.643, interact 5 0.392, duplicate 0 0.763, "
        "other_settings 1 0.844, interact 3 0.298, device_crash 0 0.544, drop 6 0.648, tick 4 0.047, "
        "device_loses_store 5 0.848, device_leave 4 0.758, tick 2 0.226, enrol_anew 2 0.87, broker_crash 2 0.969, "
        "other_settings 1 0.079, old_copy 2 0.938, tick 4 0.725",
        trust=Trust.SIGNED,
        device_keeps=3,
    ),
    # The clock had run ahead at a claim, and was right at the next one, on a database of before: nobody believed that.
    reproduction(
        "a restored database is believed although a clock had run ahead",
        "a new federator is believed",
        1,
        3,
        RoundPolicy(min_clients=2, max_clients=3, max_time_s=5.0),
        "tick 0 0.5, crash_idle 0 0.5, clock_skew 0 0.95, restart 0 0.5, tick 0 0.8, clock_skew 0 0.05, "
        "restore_database 0 0.0",
        trust=Trust.STAND_IN,
        unmended="nobody hears what was announced before",
    ),
    # As above, and the broker had lost what was announced. One that had died before its claim was looked at in place of
    # the next, so nobody did what the manual says.
    reproduction(
        "the clock is looked at for each claim on a restored database",
        "whoever takes part is heard",
        5,
        3,
        RoundPolicy(min_clients=2, max_clients=3, max_time_s=5.0),
        "tick 0 0.5, crash_idle 0 0.5, clock_skew 0 0.95, restart 0 0.5, tick 0 0.8, restore_database 0 0.0, "
        "crash_idle 0 0.5, clock_skew 0 0.05",
        trust=Trust.STAND_IN,
    ),
    # Two processes of one name, each with its own key, began in the same millisecond, so what they sent had the same
    # sequence numbers. The newer one took the answer to the older one's join, and each of its updates was refused.
    reproduction(
        "a device joins by the answer to its own join",
        "whoever takes part is heard",
        37331,
        6,
        RoundPolicy(max_clients=5, max_time_s=15.0),
        "come_back 0 0.231, come_back 0 0.407",
        trust=Trust.STAND_IN,
        limits=IntakeLimits(max_messages=12, rate_per_s=5.0, burst=8),
        busy_s=2.0,
        unmended="devices take the answers to others",
    ),
    # The only device was in quarantine, and had its update refused in the round that was open. Let out, it waited for
    # another round; but a round without contributions begins again under its number, if the federator believes
    # that nobody is there.
    reproduction(
        "a device that is let out contributes to a round that begins again",
        "whoever takes part is heard",
        61774,
        3,
        RoundPolicy(max_clients=1, max_time_s=5.0),
        "tick 1 0.715, federator_partition 2 0.189, device_leave 2 0.856, tick 0 0.69, enrol_anew 1 0.802, tick 0 "
        "0.905, revoke 0 0.922, tick 0 0.307, broker_crash 1 0.386, tick 2 0.737, tick 0 0.652, tick 0 0.534, tick 0 "
        "0.849, tick 1 0.619, quarantine 1 0.76, interact 1 0.103",
        trust=Trust.STAND_IN,
        batch_limit=2,
    ),
    # A join came in one batch with the wish to be forgotten; the answer was "forgotten" before the erasure was stored.
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
    # was restored then, answered "forgotten", and the key stayed.
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
