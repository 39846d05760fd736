"""`--config run.toml`: the options of commands in a file, under the names of the command line.

A table is named after its command, its keys after the options:

    [merge.run]
    seeds = "pairs.csv"
    mlm = ["bert-base-uncased", "roberta-base"]
    model = ["my-org/my-nli-model"]
    out = "runs/mine"

What stands on the command line goes before the file.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triaxial.errors import InputError

if TYPE_CHECKING:
    from click import Command, Parameter

__all__ = ["defaults"]


def defaults(path: Path, command: Command) -> dict[str, Any]:
    """What a file says, as the command line takes it.

    Args:
        path: A TOML file.
        command: The whole command line.

    Raises:
        InputError: The file cannot be read, or names what no command or option is called.
    """
    try:
        with path.open("rb") as file:
            told = tomllib.load(file)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not TOML: {error}", where=path) from None
    return _of(told, command, str(path))


def _of(told: Mapping[str, Any], command: Command, where: str) -> dict[str, Any]:
    commands: Mapping[str, Command] | None = getattr(command, "commands", None)
    if commands is None:
        return dict(_values(told, command, where))
    found = {}
    for name, table in told.items():
        if name not in commands:
            raise InputError(_unknown(name, "command", commands), where=where)
        if not isinstance(table, Mapping):
            raise InputError(f"{name!r} is a command; write a table [{name}]", where=where)
        found[name] = _of(table, commands[name], f"{where}: [{name}]")
    return found


def _values(told: Mapping[str, Any], command: Command, where: str) -> Iterable[tuple[str, Any]]:
    named: dict[str, Parameter] = {}
    for parameter in command.params:
        spelled = [name for name in parameter.opts if name.startswith("--")] or [parameter.name]
        named |= {str(name).lstrip("-").replace("_", "-"): parameter for name in spelled}
    named.pop("help", None)
    for key, value in told.items():
        name = key.replace("_", "-")
        if name not in named:
            raise InputError(_unknown(key, "option", named), where=where)
        yield str(named[name].name), _value(value, named[name], f"{where}: {key}")


def _value(value: Any, parameter: Parameter, where: str) -> Any:
    """A value as the command line would give it: lists are repeated, or joined by commas."""
    many = getattr(parameter, "multiple", False) or parameter.nargs == -1
    if isinstance(value, Mapping):
        raise InputError("is a table; wanted a value", where=where)
    if isinstance(value, list):
        texts = [str(one) for one in value]
        return texts if many else ",".join(texts)
    if isinstance(value, bool):
        if not getattr(parameter, "is_flag", False):
            raise InputError("is true or false; wanted a value", where=where)
        return value
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return [text] if many else text


def _unknown(name: str, what: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.replace("_", "-"), known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}"
    return f"no {what} {name!r}{hint}"
