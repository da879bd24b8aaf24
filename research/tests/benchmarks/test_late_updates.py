"""The table of late updates has a row for each way to make rounds, beside the synchronous one."""


def test_the_table_is_made(benchmark_module):
    """At a small size: every setting is one that a replay has."""
    module = benchmark_module("late_updates")
    head, _, synchronous, *others = module.table(list(module.ROWS), users=12, share=0.05, seeds=(1, 2))
    assert head.count("|") == synchronous.count("|") == 7
    assert len(others) == len(module.ROWS) - 1
    assert synchronous.split("|")[3].strip() == "0.0"
    assert all("±" in line for line in others)
