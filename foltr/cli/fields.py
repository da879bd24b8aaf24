"""Command options made from the fields of the class that checks their values, so each is described in one place.

The field ``min_time_s: float = Field(default=10.0, ge=0)`` of `Rounds`, with the text below it, becomes the option
``--min-time`` with that text, that default and the variable ``FOLTR_MIN_TIME_S``. Only the class checks the values,
with the same message for an option, a variable and a file. Typer reads just numbers, and text for choices.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from foltr.core.errors import SettingsError

Model = type[BaseModel]
Read = TypeVar("Read", bound=BaseModel)
Command = TypeVar("Command", bound=Callable[..., None])


@dataclass(frozen=True)
class Option:
    """Details of an option that the field lacks or that replace the field's. None keeps the field's.

    Attributes:
        name: with dashes; default: the field's name without the ending ``_s`` of seconds.
        variable: environment variable, if the class does not read one itself.
        unit: of the value; for seconds the ending of the field's name gives it.
    """

    name: str | None = None
    metavar: str | None = None
    text: str | None = None
    variable: str | None = None
    unit: str | None = None


# Details by field name. Fields without an entry use the class.
Options = Mapping[str, Option]
NONE: Final[Options] = {}


def option(text: str, *names: str, **more: Any) -> Any:
    """Describe an option of a command: help, names, and further arguments of Typer."""
    return typer.Option(*names, help=text, **more)


def argument(text: str, **more: Any) -> Any:
    """Describe an argument of a command, like `option`."""
    return typer.Argument(help=text, **more)


def takes_fields(model: Model, names: Iterable[str], options: Options = NONE) -> Callable[[Command], Command]:
    """Add an option per field before a command's own options. It receives them as ``**values``."""
    return takes_parameters([field_parameter(model, name, options) for name in names])


def takes_parameters(parameters: Iterable[Parameter]) -> Callable[[Command], Command]:
    """Add these options before a command's own. It receives them as ``**values``."""

    def decorate(command: Command) -> Command:
        own = signature(command)
        all_ = [*parameters, *(one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD)]
        by_name = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in all_]
        command.__signature__ = own.replace(parameters=by_name)  # type: ignore[attr-defined]
        return command

    return decorate


def field_parameter(model: Model, name: str, options: Options = NONE) -> Parameter:
    """Return a field's parameter with its default, or None as default if the class also reads other sources."""
    kind, default = _kind(model.model_fields[name].annotation), default_of(model, name)
    shown: bool | str = True
    if _prefix(model):
        shown, default = str(default) if default and default is not True else False, None
    option = typer_option(model, name, options, show_default=shown)
    option.callback = _left_to_the_class if _prefix(model) else None
    # The type comes from a field, so a type checker cannot know it.
    annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _left_to_the_class(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    """Return None for a value from the environment: the settings class reads those itself and records the source."""
    source = context.get_parameter_source(parameter.name or "")
    return None if source is not None and source.name == "ENVIRONMENT" else value


def typer_option(model: Model, name: str, options: Options = NONE, *, show_default: bool | str = False) -> Any:
    """Return the option of a field: name, variable and help text."""
    field, option, prefix = model.model_fields[name], _option(model, name, options), _prefix(model)
    return typer.Option(
        option_name(model, name, options),
        envvar=f"{prefix}{name.upper()}" if prefix else option.variable,
        metavar=option.metavar,
        help=option.text or _text(field),
        show_default=show_default,
    )


def option_name(model: Model, name: str, options: Options = NONE) -> str:
    """Return the name of a field's option."""
    return _option(model, name, options).name or "--" + name.removesuffix("_s").replace("_", "-")


def allowed_values(field: FieldInfo) -> str:
    """Return the choices or bounds of a field. Empty if it has none."""
    if choices := _choices(_one_type(field.annotation)):
        return f"one of {', '.join(choices)}"
    bounds = {name: getattr(one, name) for one in field.metadata for name in _BOUNDS if hasattr(one, name)}
    if bounds.keys() == {"ge", "le"}:
        return f"{bounds['ge']:,} to {bounds['le']:,}"
    return " and ".join(f"{words} {bounds[name]:,}" for name, words in _BOUNDS.items() if name in bounds)


def unit_of(model: Model, name: str) -> str:
    """Return the unit of a field's value. Empty if it has none."""
    return "seconds" if name.endswith("_s") else _option(model, name, NONE).unit or ""


def read_values(model: Model, values: Mapping[str, Any], options: Options = NONE) -> dict[str, Any]:
    """Convert options to the types of their fields: assignments to a dict, comma-separated values to a list.

    Options that were not given are left out.
    """
    read = {name: value for name, value in values.items() if value is not None}
    for name, field in model.model_fields.items():
        value = read.get(name)
        if isinstance(value, list):
            read[name] = read_parameters(value, option_name(model, name, options))
        elif isinstance(value, str) and get_origin(field.annotation) is tuple:
            read[name] = tuple(item.strip() for item in value.split(","))
    return read


def read_model(model: type[Read], values: Mapping[str, Any], options: Options = NONE) -> Read:
    """Build an object from options. Raises SettingsError in one line that names each wrong option."""
    try:
        return model(**read_values(model, values, options))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        told = (
            f"{option_name(model, str(one['loc'][0]), options)}: {one['msg']}, not {one['input']!r:.60}"
            for one in problems
        )
        raise SettingsError("; ".join(told)) from error


def read_parameters(assignments: Iterable[str], option: str) -> dict[str, str]:
    """Parse ``name=value`` texts. SettingsError names the option of a wrong one."""
    try:
        return read_assignments(assignments)
    except ValueError as error:
        raise SettingsError(f"{option}: {error}") from error


def read_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Parse ``name=value`` texts into a dict. Raises ValueError for any other text; skips empty ones."""
    values = {}
    for assignment in assignments:
        if not assignment.strip():
            continue
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"{assignment!r} is not name=value")
        values[name.strip()] = value.strip()
    return values


# --- what a field says ------------------------------------------------------------------------------------------

_ASSIGNMENTS: Final = list[str]
_BOUNDS: Final = {"ge": "at least", "gt": "above", "le": "at most"}


def _option(model: Model, name: str, options: Options) -> Option:
    said = (one for one in model.model_fields[name].metadata if isinstance(one, Option))
    return options.get(name) or next(said, Option())


def _prefix(model: Model) -> str:
    """Return the prefix of the class's environment variables. Empty for a class that reads none."""
    return str(getattr(model, "env_prefix", ""))


def _kind(annotation: Any) -> Any:
    """Return Typer's type for a field: text for lists and choices, a list of assignments for a dict."""
    one = _one_type(annotation)
    origin = get_origin(one)
    if origin is dict:
        return _ASSIGNMENTS
    return str if origin is tuple or _choices(one) else one


def _one_type(annotation: Any) -> Any:
    """Return a field's type without None and annotations."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _one_type(arguments[0])
    if origin in (Union, UnionType):
        return _one_type(next(one for one in arguments if one is not NoneType))
    return annotation


def _choices(annotation: Any) -> tuple[str, ...]:
    """Return the values of a field with few choices."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return tuple(str(one.value) for one in annotation)
    return ()


def _text(field: FieldInfo) -> str:
    """Return a field's description, with its choices if the text does not name them."""
    text, choices = field.description or "", _choices(field.annotation)
    text = text if text.endswith("...") else text.removesuffix(".")
    return text if all(one in text for one in choices) else f"{text} ({', '.join(choices)})"


def default_of(model: Model, name: str) -> Any:
    """Return the default as an option shows it, None without one."""
    default = model.model_fields[name].get_default(call_default_factory=True)
    return ",".join(map(str, default)) if isinstance(default, tuple) else None if default == {} else default
