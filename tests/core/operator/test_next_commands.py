"""What an operator is told to run next names the folder that it is about."""

import shlex
from pathlib import Path

from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in


def test_a_shell_reads_the_folder_that_was_meant():
    """The command quotes each name of a folder, and leaves out the default one."""
    for folder in ["op", "/srv/foltr/op", "the operator's own"]:
        words = shlex.split(command_in(Path(folder), "foltr device enrol CLIENT --token"))
        assert words == ["foltr", "device", "enrol", "CLIENT", "--token", "--operator", folder], folder
    assert command_in(DEFAULT_OPERATOR_FOLDER, "foltr operator desk") == "foltr operator desk"
