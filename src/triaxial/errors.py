"""The errors a user may see: one line that says where, what was seen, what was wanted, what to do.

Every error that is not a fault of ours is a `TriaxialError`. The command line prints its text on
one line and leaves with its `exit_code`; anything else is a fault of ours and leaves with 3.
"""

from __future__ import annotations

__all__ = ["GateError", "InputError", "StoreError", "TriaxialError"]


class TriaxialError(Exception):
    """A failure that the user can mend.

    Args:
        message: What was seen, what was wanted and the next step, on one line.
        where: The place: a file, `file:row`, a directory or an option. Printed before the message.
    """

    exit_code = 2

    def __init__(self, message: str, *, where: object = None) -> None:
        self.where = None if where is None else str(where)
        text = message if self.where is None else f"{self.where}: {message}"
        super().__init__(" ".join(text.splitlines()))


class InputError(TriaxialError):
    """Bad input: a file, a row, an option, a model that cannot be used."""


class StoreError(TriaxialError):
    """The store or an output directory cannot be read or written; committed work is kept."""


class GateError(TriaxialError):
    """A quality gate (`--fail-if`) was not met. The run itself succeeded."""

    exit_code = 1
