"""The groups of a device's options, for tests that hand single options on."""

from dataclasses import fields

from foltr.edge_client.options import Connection, Experiment, Privacy, Ranking

_GROUPS = {"connection": Connection, "ranking": Ranking, "privacy": Privacy, "experiment": Experiment}


def grouped(**single):
    """The arguments of `EdgeClient` and `SearchRanker`, and what is none of a group's as it was given."""
    arguments = {}
    for name, group in _GROUPS.items():
        chosen = {one.name: single.pop(one.name) for one in fields(group) if one.name in single}
        if chosen:
            arguments[name] = group(**chosen)
    return arguments | single
