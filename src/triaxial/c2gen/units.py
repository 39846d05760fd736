"""The units of a grid: one fold under one stream, strategy and seed each, all of it checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from triaxial.c2gen.compose import Item
from triaxial.c2gen.grid import Grid
from triaxial.c2gen.streams import Fold, draw_fold, stream_named, validate_fold
from triaxial.errors import InputError

if TYPE_CHECKING:
    from triaxial.c2gen.hooks import Finetuning

__all__ = ["Unit", "units_of"]


@dataclass(frozen=True, slots=True)
class Unit:
    """One fold under one stream, strategy and seed."""

    fold: Fold
    strategy: Finetuning
    seed: int


def units_of(items: Sequence[Item], grid: Grid) -> list[Unit]:
    """The units of a grid, in the order in which they are shown.

    Raises:
        InputError: An unknown stream, strategy or fold, a setting that no strategy has, a fold that
            cannot be drawn or is not valid.
    """
    from triaxial.c2gen.strategies import strategy_named

    strategies = [strategy_named(name, grid.settings) for name in dict.fromkeys(grid.strategies)]
    known = {name for strategy in strategies for name in asdict(strategy)}
    if idle := [name for name in grid.settings if name not in known]:
        chosen = ", ".join(strategy.name for strategy in strategies)
        raise InputError(f"no chosen strategy ({chosen}) has it; leave it out", where=idle[0])
    for name, values in (("--folds", grid.folds), ("--seeds", grid.seeds)):
        if not values:
            raise InputError("nothing is chosen; give at least one", where=name)
    units = []
    for name in dict.fromkeys(grid.streams):
        # A file's stream says itself what it holds out.
        folds = (0,) if name.endswith(".toml") else dict.fromkeys(grid.folds)
        for test_type in folds:
            stream = stream_named(name, test_type, grid.solution)
            fold = draw_fold(items, stream, grid.draw)
            validate_fold(items, fold)
            if not (fold.test or fold.probe or fold.unseen):
                raise InputError(
                    "nothing is held out to be judged; give it a test_type, or raise --probe",
                    where=f"stream {stream.name}",
                )
            plain = strategy_named("none", {})
            mine = [plain] if len(stream.phases) == 1 else strategies
            units += [Unit(fold, strategy, seed) for strategy in mine for seed in grid.seeds]
    return units
