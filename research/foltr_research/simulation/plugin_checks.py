"""Checks of objects from outside before a run calls them: their arguments, their defaults, and what they return.

`foltr_research.simulation.plugins` makes them for what a configuration names. An error says which object it is and what
was expected, instead of a traceback from within foltr.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from pydantic import PydanticUserError, ValidationError
from pydantic_core import PydanticUndefined

from foltr.core.errors import DataError, SettingsError
from foltr.core.evaluation.click_models import ClickModel
from foltr_research.simulation.own_data import Arrays, arrays_of
from foltr_research.simulation.own_method import Method

# How many values a run gives to a function; data gets the seed if it takes one.
_N_VALUES: Final = {"aggregation": 3, "attack": 1, "clicks": 2, "metrics": 3}
# They also get their parameters, by name.
_WITH_PARAMETERS: Final = ("aggregation", "attack")
# Names of settings that all of a kind have; a function would never get its own of such a name.
_TAKEN: Final = {"aggregation": "beyond_bounds", "attack": "knowledge"}
_IS_CHECKED: Final = "checks_its_value"
_ARRAYS: Final = "features (documents, d), relevance and query ids, with the same d for all queries"


def checked(kind: str, name: str, thing: Any, expected: str) -> Any:
    """Return an object of a kind; for data sets and metrics a function that also checks what theirs returns.

    Args:
        kind: the field of a configuration that names it.
        expected: what an object of the kind is.

    Raises:
        SettingsError: a run could not call it, or a parameter's default is none of its type.
    """
    if kind == "method":
        if isinstance(thing, type) and issubclass(thing, Method):
            _check_method(name, thing)
        return thing
    function = thing.reads if isinstance(thing, ClickModel) else thing
    # A sweep loads what its configurations name once for each of them.
    if not callable(function) or hasattr(function, _IS_CHECKED):
        return thing
    if not (inspect.isroutine(function) or hasattr(function, "__dict__")):
        raise SettingsError(
            f"{kind}: {name}: a kept run depends on its attributes, and it has __slots__; leave them out"
        )
    signature = _signature(function)
    if signature is not None:
        n = _N_VALUES.get(kind, min(1, len(signature.parameters)))
        _check_call(f"{kind}: {name}", signature, n, expected, by_name=kind in _WITH_PARAMETERS)
        if _TAKEN.get(kind) in signature.parameters:
            raise SettingsError(f"{kind}: {name}: its parameter {_TAKEN[kind]} is a setting of foltr's; rename it")
    # Other callable objects have a fingerprint by their attributes, which a function around them would hide.
    if kind in _RETURNED and (inspect.isroutine(thing) or isinstance(thing, functools.partial)):
        return _with_checked_value(f"{kind}: {name}", thing, _RETURNED[kind])
    return thing


def checked_arrays(given: object) -> Arrays:
    """Return the arrays of a data set.

    Raises:
        DataError: they are none, have values that are masked out, or queries differ in their features.
    """
    if _has_masked(given):
        raise DataError("data: values that are masked out would count as they are; fill them, or leave out their rows")
    try:
        arrays = arrays_of(given)
    except ValueError as error:  # rows of several lengths
        raise DataError(f"data: expected {_ARRAYS}; {error}") from error
    widths = [part.shape[1:] for part in arrays[::3]]
    if widths[0] != widths[-1]:
        raise DataError(f"data: expected {_ARRAYS}; those for training are {widths[0]}, those for test {widths[-1]}")
    return arrays


def _has_masked(given: object, depth: int = 2) -> bool:
    if isinstance(given, tuple | list):
        return depth > 0 and any(_has_masked(one, depth - 1) for one in given)
    return np.ma.is_masked(given)


def _check_method(name: str, method: type[Method]) -> None:
    for function, values in (("learn", "weights, a shown list and rng"), ("send", "weights, start and rng")):
        of_object = not isinstance(inspect.getattr_static(method, function), staticmethod | classmethod)
        expected = f"a function of {'self, ' if of_object else ''}{values}"
        signature = _signature(getattr(method, function))
        if signature is not None:
            _check_call(f"method: {name}.{function}", signature, 3 + of_object, expected)
    # By itself pydantic does not look at defaults.
    fields = method.model_fields.items()
    defaults = {key: one.default for key, one in fields if one.default is not PydanticUndefined}
    try:
        method.model_validate(defaults, strict=False)
    except ValidationError as error:
        wrong = [one for one in error.errors(include_url=False) if one["type"] != "missing"]
        if wrong:
            field = ".".join(map(str, wrong[0]["loc"])) or "its parameters"
            raise SettingsError(f"method: {name}: the default of {field}: {wrong[0]['msg']}") from error
    except PydanticUserError as error:  # a type that does not exist
        raise SettingsError(f"method: {name}: {error.message}") from error


def _check_call(what: str, signature: inspect.Signature, n: int, expected: str, *, by_name: bool = False) -> None:
    """Raise SettingsError unless a function can be called with n values, and with its parameters by name."""
    parameters = {key: one.default for key, one in signature.parameters.items() if one.default is not one.empty}
    try:
        signature.bind(*[None] * n, **(parameters if by_name else {}))
    except TypeError as error:
        raise SettingsError(
            f"{what}{signature} cannot be called with {n} value{'s' * (n != 1)}: {error}; expected {expected}"
        ) from error


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return a function's arguments; None if Python cannot tell, as of some compiled ones."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _with_checked_value(what: str, function: Callable[..., Any], check: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*seen: Any) -> Any:
        made = function(*map(_read_only, seen))
        try:
            return check(made)
        except DataError as error:
            raise DataError(f"{what}: {str(error).removeprefix('data: ')}") from error

    setattr(call, _IS_CHECKED, True)
    return call


def _read_only(value: Any) -> Any:
    """Return an array that cannot be written to; other functions get the same one."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def _checked_number(made: object) -> float:
    number = np.asarray(made)
    if number.shape or number.dtype.kind not in "fiub":
        raise DataError(f"expected a number for each query, not {made!r:.60}")
    return float(number)


_RETURNED: Final[dict[str, Callable[[Any], Any]]] = {"data": checked_arrays, "metrics": _checked_number}
