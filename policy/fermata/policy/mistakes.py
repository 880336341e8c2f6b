"""What pydantic finds wrong with a file or an option, in one line."""

from __future__ import annotations

from pydantic import ValidationError


def first_mistake(found: ValidationError) -> str:
    """Say in one line which field is wrong and what was expected, and what stood there if that is short.

    A key that is unknown goes first: where it is misspelled, another one is missing.
    """
    errors = found.errors()
    error = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    field, given = ".".join(map(str, error["loc"])) or "the file", error["input"]
    match error["type"]:
        case "extra_forbidden":
            return f"{field}: no such key"
        case "missing":
            return f"{field}: is missing"
        case "model_type":
            return f"{field}: expected keys and values"
        case "value_error":
            return f"{field}: {error['ctx']['error']}"
    shown = f", got {given!r}" if isinstance(given, str | int | float | None) else ""
    return f"{field}: {error['msg']}{shown}"
