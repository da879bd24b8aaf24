"""Makes the site's reference of commands and messages, as Markdown, from the code that reads them.

The pages are long and change with every flag, so they are made with the site and are not in the repository.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

from foltr.cli.commands import ALL_COMMANDS, load_command
from foltr.core.protocol.fields import NAME_PATTERN, PRINTABLE
from foltr.core.protocol.messages import MESSAGE_TYPES

PATTERNS = {NAME_PATTERN: "a name", PRINTABLE: "printable", r"^[0-9a-f]{32}$": "32 hex digits"}


def commands_reference() -> str:
    """Return a section for each command, groups followed by theirs: help, usage and options."""
    return "\n\n".join(
        section for name in sorted(ALL_COMMANDS) for section in _command(load_command(name), f"foltr {name}", "##")
    )


def _command(command: Any, words: str, heading: str) -> Iterator[str]:
    context = command.context_class(command, info_name=words)
    parts = [f"{heading} {words}", plain(command.help or "")]
    below = getattr(command, "commands", {})
    if not below:
        parts.append(f"```text\n{_usage(command, context, words)}\n```")
        parts.append(_options(command, context))
    yield "\n\n".join(part for part in parts if part)
    for name in sorted(below):
        yield from _command(below[name], f"{words} {name}", "###" if heading == "##" else "####")


def _usage(command: Any, context: Any, words: str) -> str:
    return " ".join([words, *command.collect_usage_pieces(context)])


def _options(command: Any, context: Any) -> str:
    records = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]
    rows = [_option(shown, words) for shown, words in records if shown != "--help"]
    return (
        "\n".join(["| argument or option | meaning | variable | default |", "|---|---|---|---|", *rows]) if rows else ""
    )


def _option(shown: str, words: str) -> str:
    """Return the row of an option, whose help ends in ``[env var: NAME; default: VALUE]`` or a part of that."""
    found = re.fullmatch(
        r"(.*?)(?:  \[(?:env var: (\w+))?(?:; )?(?:default: (.*?))?(?:; )?(required)?\])?", words, re.DOTALL
    )
    if found is None:
        raise ValueError(f"the help of {shown} cannot be read: {words}")
    meaning, variable, default, required = found.groups()
    if default is not None:
        default = f"`{default.removeprefix('(').removesuffix(')')}`"
    named = "" if variable is None else f"`{variable}`"
    return f"| `{cell(shown)}` | {cell(plain(meaning))} | {named} | {required or default or ''} |"


def plain(text: str) -> str:
    """Escape Markdown in plain text, except in code."""
    pieces = re.split(r"(``[^`]+``|`[^`]+`)", text)
    return "".join(
        piece if number % 2 else re.sub(r"([*<\[]|(?<!\w)_|_(?!\w))", r"\\\1", piece)
        for number, piece in enumerate(pieces)
    )


def cell(text: str) -> str:
    """Fit a text into a table cell: one line, with the column separator escaped."""
    return " ".join(text.split()).replace("|", r"\|")


def messages_reference() -> str:
    """Return a section for each message by its kind, then for their shared parts."""
    parts: dict[str, dict[str, Any]] = {}
    sections = ["## Kinds of messages"]
    for kind, message_type in MESSAGE_TYPES.items():
        schema = message_type.model_json_schema()
        parts |= schema.pop("$defs", {})
        sections.append(_message(f"### {kind}", schema, message_type))
    names = {message_type.__name__ for message_type in MESSAGE_TYPES.values()}
    sections.append("## Parts of messages")
    sections += [_message(f"### {name}", parts[name], None) for name in sorted(parts.keys() - names)]
    return "\n\n".join(sections)


def _message(heading: str, schema: dict[str, Any], message_type: type | None) -> str:
    text = schema.get("description", "") if message_type is None else inspect.getdoc(message_type) or ""
    says, _, attributes = text.partition("\nAttributes:\n")
    meanings = {
        name: " ".join(words.split())
        for name, words in re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", attributes, re.MULTILINE)
    }
    if "enum" in schema:
        return f"{heading}\n\n{plain(says.strip())}\n\nOne of {_listed(schema['enum'])}."
    rows = [
        [f"`{name}`", _type(field), _default(field, name in schema.get("required", ())), plain(meanings.get(name, ""))]
        for name, field in schema.get("properties", {}).items()
    ]
    head = ["field", "type", "default", "meaning"][: None if meanings else -1]
    lines = [head, ["---"] * len(head), *(row[: len(head)] for row in rows)]
    table = "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)
    return "\n\n".join(part for part in (heading, plain(says.strip()), table if rows else "") if part)


def _default(field: dict[str, Any], required: bool) -> str:
    if required:
        return "required"
    default = field.get("const", field.get("default"))
    return "none" if default is None else "empty" if default in ("", []) else f"`{default}`"


def _type(field: dict[str, Any]) -> str:
    """Describe a field's type: a link to a part, or a type with its bounds."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in field:
            return " or ".join(_type(one) for one in field[key])
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return f"one of {_listed(field['enum'])}"
    match field.get("type"):
        case "array":
            items = _type(field["items"]) if "items" in field else "; ".join(map(_type, field.get("prefixItems", [])))
            return f"list of {_sizes(field, 'minItems', 'maxItems')}{items}"
        case "object":
            return f"map of {_type(field.get('additionalProperties', {}))}"
        case "string" if field.get("format") == "binary":
            return f"bytes{_lengths(field)}"
        case "string":
            pattern = field.get("pattern")
            return f"text{_lengths(field)}" + ("" if pattern is None else f", {PATTERNS.get(pattern, f'`{pattern}`')}")
        case "integer" | "number":
            return field["type"] + _bounds(field)
        case "null":
            return "none"
        case "boolean":
            return "boolean"
        case None:
            return "anything"
        case other:
            raise ValueError(f"no words for the type {other!r}")


def _listed(values: list[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _sizes(field: dict[str, Any], least: str, most: str) -> str:
    low, high = field.get(least), field.get(most)
    if low is not None and low == high:
        return f"{number(low)} "
    if high is not None:
        return f"{number(low or 0)} to {number(high)} "
    return "" if low is None else f"at least {number(low)} "


def _lengths(field: dict[str, Any]) -> str:
    sizes = _sizes(field, "minLength", "maxLength").strip()
    return f" ({sizes})" if sizes else ""


def _bounds(field: dict[str, Any]) -> str:
    above, low = field.get("exclusiveMinimum"), field.get("minimum")
    below, high = field.get("exclusiveMaximum"), field.get("maximum")
    said = [f"above {number(above)}" if above is not None else "", f"from {number(low)}" if low is not None else ""]
    said += [f"below {number(below)}" if below is not None else "", f"to {number(high)}" if high is not None else ""]
    words = " ".join(word for word in said if word)
    return f", {words}" if words else ""


def number(value: float) -> str:
    """Format a bound, with powers of two as such."""
    for offset, suffix in ((0, ""), (1, " - 1")):
        whole = int(value) + offset
        if whole == value + offset and whole >= 2**16 and whole & (whole - 1) == 0:
            return f"2^{whole.bit_length() - 1}{suffix}"
    return f"{int(value):,}" if value == int(value) else f"{value:g}"
