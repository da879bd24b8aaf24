"""Where words that are stored name a client, so that its name can be taken out of them, and nothing else changes.

A name is found by the words around it, not by itself: of a client ``1`` or ``a`` no number and no article names it.
Only a name that no sentence holds by chance, such as ``device-7``, is taken out wherever it is.
"""

import re
from collections.abc import Callable

# What is said before and after a name, wherever the federator says one, or an older version did. Nothing after it: the
# words end there.
PLACES = (
    ("says it is from ", " on the topic of "),
    (" on the topic of ", ""),
    ("the enrolment is not one of ", " signed by "),
    ("no client ", " has ever joined"),
    ("; most from ", ": "),
    (" from '", "' in federation "),
)
# Shorter ones, and plain numbers, are taken for a name in the operator's words only where these say that they are one.
_LEAST_LETTERS = 3
_SAYS_IT_IS_A_NAME = "(?:(?<=['\"`])|(?<=client )|(?<=Client )|(?<=device )|(?<=Device ))"

Rewrite = Callable[[str], str]


def is_unmistakable(client_id: str) -> bool:
    """Tell whether no sentence of the federator holds it but to name the client: letters with a number after - or _."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*[A-Za-z][-_][0-9]+", client_id) is not None


def in_the_federators_words(client_id: str, instead: str) -> Rewrite:
    """Make what replaces a client's name in what the federator says: exactly where it names a client.

    An unmistakable one wherever it is: a place that is not among `PLACES` must not keep it.
    """
    name = re.escape(client_id)
    places = [f"(?<={re.escape(before)}){name}(?={re.escape(after) or '$'})" for before, after in PLACES]
    if is_unmistakable(client_id):
        places.append(_whole(client_id))
    return _replacing("|".join(places), instead)


def in_the_operators_words(client_id: str, instead: str) -> Rewrite:
    """Make what replaces a client's name in what the operator says, as a whole word.

    So ``device-1`` is not in ``device-12``.

    People write as they like, so a name that is a word of theirs, too, is taken out with it: better one word too many
    than a name that is left. Of names that most texts would hold by chance, ``a`` or ``12``, only those are replaced
    that are in quotes or come after "client" or "device".
    """
    whole = _whole(client_id)
    by_chance = len(client_id) < _LEAST_LETTERS or client_id.isdigit()
    return _replacing(f"{_SAYS_IT_IS_A_NAME}{whole}" if by_chance else whole, instead)


def _whole(client_id: str) -> str:
    return rf"(?<![A-Za-z0-9_.-]){re.escape(client_id)}(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"


def _replacing(pattern: str, instead: str) -> Rewrite:
    name = re.compile(pattern)
    return lambda words: name.sub(instead, words)
