"""The clock lint finds each kind of line that may hang a verdict on a clock, and takes each of its reasons."""

from support.clock_lint import REASONS, faults_in

FAULTY = {
    "time.sleep(0.1)": "sleeps 0.1 s",
    "await asyncio.sleep(2)": "sleeps 2 s",
    "began = time.monotonic()": "reads a clock (monotonic)",
    "began = perf_counter()": "reads a clock (perf_counter)",
    "began = time.process_time()": "reads a clock (process_time)",
    "@settings(deadline=200)\ndef test(): ...": "a deadline",
    "async with asyncio.timeout(5): ...": "gives up below 10 s",
    "await asyncio.wait_for(task, 9.5)": "gives up below 10 s",
    "process.wait(timeout=5)": "timeout is below 10 s",
    "client.next_round(timeout_s=1)": "timeout_s is below 10 s",
    "look(patience_s=3.0)": "patience_s is below 10 s",
    "WITHIN_S = 5": "WITHIN_S is below 10 s",
    "ANSWER_TIMEOUT_S = 2.0": "ANSWER_TIMEOUT_S is below 10 s",
}
HARMLESS = (
    "time.sleep(0.05)",
    "await asyncio.sleep(pause_s)",
    "await asyncio.sleep(0)",
    "async with asyncio.timeout(PATIENCE_S): ...",
    "async with asyncio.timeout(60): ...",
    "process.wait(timeout=0)",
    "@settings(max_examples=5)\ndef test(): ...",
    "plan(max_time_s=2.0)",
    "now = time.time()",
)


def faults(line: str) -> list[tuple[int, str]]:
    return faults_in(f"async def tested():\n    {line}\n" if line.startswith(("await", "async")) else f"{line}\n")


def test_a_line_that_may_hang_a_verdict_on_a_clock_is_named():
    """With its number, and what is wrong with it; no other line is."""
    for line, expected in FAULTY.items():
        ((number, wrong),) = faults(line)
        assert (number, expected in wrong) == (1 + line.startswith(("await", "async")), True), (line, wrong)
    assert {line: found for line in HARMLESS if (found := faults(line))} == {}


def test_a_line_that_says_why_is_taken_with_each_reason_of_the_list_and_with_no_other():
    """In a comment of its own, which may say more behind it; also where the call goes over several lines."""
    for reason in REASONS:
        assert faults(f"time.sleep(5)  # clock: {reason}") == []
        assert faults(f"time.sleep(5)  # clock: {reason} (the lease of a leader)") == []
        assert faults(f"look(\n    client,\n    timeout_s=1,  # clock: {reason}\n)") == []
    assert faults("time.sleep(5)  # it is quick") == [(1, "sleeps 5 s: wait for what happens")]
    assert faults("time.sleep(5)  # clock: quick") == [(1, "no reason of the list: quick")]
