"""Reads files that people write, JSON of a model, and reports errors with their place."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from foltr.core.errors import SettingsError
from foltr.core.user_files import FileKind, read_file

ModelT = TypeVar("ModelT", bound=BaseModel)


def read_written_file(kind: type[ModelT], path: str | Path, option: str) -> ModelT:
    """Read a file of a kind; SettingsError, with the option that named it, if it is missing or invalid."""
    try:
        return kind.model_validate_json(read_file(path, FileKind.DECLARATION))
    except OSError as error:
        raise SettingsError(f"{option}: {path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise SettingsError(f"{option}: {path}: {place}: {first['msg']}; see docs/features.md") from None
