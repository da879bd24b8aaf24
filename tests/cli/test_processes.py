"""The command line as processes: what `cli.commands.foltr` runs inside the tests."""

from cli.commands import foltr, foltr_fresh


def test_inside_the_tests_a_command_does_the_same(tmp_path):
    """Exit code and both outputs, to the letter."""
    foltr("device", "enrol", "device-7", "--broker", "mqtt://127.0.0.1:1", cwd=tmp_path, code=0)
    for words in ("--version", "operator roster", "db current --db sqlite:///missing.sqlite", "client run --data ."):
        inside, process = (run(*words.split(), cwd=tmp_path) for run in (foltr, foltr_fresh))
        assert vars(inside) | {"args": ()} == vars(process) | {"args": ()}, words
