"""`triax nli train` and `triax mlm train`: the models that the axes need, from plain data."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from triaxial.cli import options
from triaxial.cli.console import note, progress
from triaxial.errors import InputError

if TYPE_CHECKING:
    from triaxial.models.fit import FitOptions

__all__ = ["mlm_app", "nli_app"]

nli_app = typer.Typer(no_args_is_help=True, help="NLI classifiers: train one on your pairs.")
mlm_app = typer.Typer(no_args_is_help=True, help="Masked LMs: train one further on your texts.")


@nli_app.callback()
@mlm_app.callback()
def _group() -> None:
    """Keeps `train` a command of its own, though there is only one."""


Out = Annotated[
    Path,
    typer.Option(
        "--out",
        help="Directory for the model; the same command again goes on where it was stopped.",
        show_default=False,
        rich_help_panel="Output",
    ),
]
Epochs = Annotated[
    int, typer.Option(min=1, help="Passes over the data.", rich_help_panel="Training")
]
BatchSize = Annotated[
    int, typer.Option(min=1, help="Rows of one update.", rich_help_panel="Training")
]
Rate = Annotated[float, typer.Option(help="The highest learning rate.", rich_help_panel="Training")]
Seed = Annotated[
    int,
    typer.Option(help="Of new weights, the order and dropout.", rich_help_panel="Training"),
]
Every = Annotated[
    int,
    typer.Option(
        min=1,
        help="Updates between two checkpoints. A killed call loses at most these.",
        rich_help_panel="Training",
    ),
]


@nli_app.command("train")
def train_nli(
    data: options.Source,
    encoder: Annotated[
        str,
        typer.Option(
            help="What to start from: directory or hub id of any encoder (BERT, RoBERTa, DeBERTa, "
            "MiniLM, …).",
            show_default=False,
            rich_help_panel="Training",
        ),
    ],
    out_: Out,
    split: options.Split = None,
    held_out: Annotated[
        str | None,
        typer.Option(
            "--eval",
            help="Pairs on which to measure the trained model, as DATA. With `--eval-split` "
            "alone: another split of DATA.",
            rich_help_panel="Data",
        ),
    ] = None,
    eval_split: Annotated[
        str | None, typer.Option(help="Split of the held-out pairs.", rich_help_panel="Data")
    ] = None,
    columns: options.Columns = None,
    label_map: options.LabelMap = None,
    on_bad: options.OnBad = "refuse",
    limit: options.Limit = None,
    epochs: Epochs = 3,
    batch_size: BatchSize = 32,
    learning_rate: Rate = 5e-5,
    seed: Seed = 1,
    checkpoint_every: Every = 200,
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Train an NLI classifier: an encoder with a new head, on your labelled pairs.

    For example, on the training split of SICK, measured on its trial split:

        triax nli train sick:SICK.txt --split TRAIN --eval-split TRIAL
        --encoder microsoft/MiniLM-L12-H384-uncased --out model

    The model is an ordinary Hugging Face directory; `training.json` in it says how it was made and
    how good it is. On several GPUs: `torchrun --nproc-per-node 2 -m triaxial nli train …`
    """
    pairs = options.read(data, split, columns, label_map, on_bad, limit)
    tests: Any = ()
    if held_out or eval_split:
        read = options.read(held_out or data, eval_split, columns, label_map, on_bad, None)
        tests = read.pairs
    _tell_dropped(pairs.dropped)

    from triaxial.models.base import hardware
    from triaxial.models.distributed import joined
    from triaxial.models.finetune import train_classifier

    chosen = _options(epochs, learning_rate, seed, checkpoint_every)
    with joined(device) as (team, mine), _bar() as bar:
        facts = train_classifier(
            encoder,
            pairs.pairs,
            out_,
            chosen,
            batch_size=batch_size,
            held_out=tests,
            where=hardware(mine, precision),
            progress=bar,
            team=team,
        )
    if as_json:
        _print_json(facts)
        return
    lines = [_trained(out_, facts, "pairs")]
    if facts["held_out"]:
        found = facts["held_out"]
        lines.append(
            f"accuracy {_percent(found['accuracy'])} on {found['n']:,} held-out pairs; always "
            f"{found['majority']!r}: {100 * found['majority_accuracy']:.1f} %"
        )
    else:
        lines.append("not measured: pass --eval DATA or --eval-split SPLIT for an accuracy")
    lines.append(
        f"next: triax merge run {shlex.quote(held_out or data)}"
        f"{f' --split {eval_split}' if eval_split else ''} --model {shlex.quote(str(out_))} "
        "--mlm MASKED_LM --out merge"
    )
    _print(lines)


@mlm_app.command("train")
def train_mlm(
    texts: Annotated[
        list[str],
        typer.Argument(
            help="A .txt file with one sentence a line, a .jsonl file, or NLI pairs such as "
            "`sick:SICK.txt`, whose sentences are used; several may be given.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            help="Masked LM to start from: directory or hub id.",
            show_default=False,
            rich_help_panel="Training",
        ),
    ],
    out_: Out,
    column: Annotated[
        str, typer.Option(help="Field of a .jsonl line that holds the text.")
    ] = "text",
    split: options.Split = None,
    held_out: Annotated[
        str | None,
        typer.Option(
            "--eval",
            help="Texts on which to measure the model before and after, as TEXTS; texts that "
            "occur there are not trained on.",
            rich_help_panel="Data",
        ),
    ] = None,
    eval_split: Annotated[
        str | None, typer.Option(help="Split of the held-out texts.", rich_help_panel="Data")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Train on the first so many texts.", rich_help_panel="Data"),
    ] = None,
    mask_share: Annotated[
        float,
        typer.Option(help="Share of tokens to predict, 0..1.", rich_help_panel="Training"),
    ] = 0.15,
    epochs: Epochs = 3,
    batch_size: BatchSize = 32,
    learning_rate: Rate = 5e-5,
    seed: Seed = 1,
    checkpoint_every: Every = 200,
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Train a masked LM further, so that it knows the words of your texts.

    For example, on the sentences of SICK:

        triax mlm train sick:SICK.txt --model bert-base-uncased --out mlm

    Each distinct text is used once in an epoch. The result proposes replacements in `triax merge`.
    On several GPUs: `torchrun --nproc-per-node 2 -m triaxial mlm train …`
    """
    found = list(dict.fromkeys(text for source in texts for text in _texts(source, column, split)))
    tests: list[str] = []
    if held_out or eval_split:
        sources = [held_out] if held_out else texts
        tests = list(
            dict.fromkeys(t for source in sources for t in _texts(source, column, eval_split))
        )
        kept = set(tests)
        before = len(found)
        found = [text for text in found if text not in kept]
        if before > len(found):
            note(f"left out {before - len(found):,} texts that are held out")
    found = found[:limit]

    from triaxial.models.base import hardware
    from triaxial.models.distributed import joined
    from triaxial.models.finetune import train_masked

    chosen = _options(epochs, learning_rate, seed, checkpoint_every)
    with joined(device) as (team, mine), _bar() as bar:
        facts = train_masked(
            model,
            found,
            out_,
            chosen,
            batch_size=batch_size,
            mask_share=mask_share,
            held_out=tests,
            where=hardware(mine, precision),
            progress=bar,
            team=team,
        )
    if as_json:
        _print_json(facts)
        return
    lines = [_trained(out_, facts, "texts")]
    if facts["held_out"]:
        seen = facts["held_out"]
        loss, start = seen["loss"], seen["loss_before"]
        lines.append(
            f"loss {loss['value']:.3f} [{loss['low']:.3f}, {loss['high']:.3f}] nats a masked token "
            f"on {seen['n']:,} held-out texts; before {start['value']:.3f}; word frequencies "
            f"alone {seen['unigram_loss']:.3f}"
        )
    else:
        lines.append("not measured: pass --eval TEXTS for a held-out loss")
    lines.append(
        f"next: triax merge run DATA --mlm {shlex.quote(str(out_))} --model NLI_MODEL --out merge"
    )
    _print(lines)


def _texts(source: str, column: str, split: str | None) -> Iterator[str]:
    """Texts of a source, byte for byte but for the line end; blank lines are no texts."""
    path = Path(source).expanduser()
    if path.suffix == ".txt":
        yield from (line for _, line in _lines(path) if line.strip())
    elif path.suffix == ".jsonl" and ":" not in source:
        yield from _fields(path, column)
    else:
        from triaxial.nli import read_pairs

        for pair in read_pairs(source, split=split).pairs:
            yield pair.premise
            yield pair.hypothesis


def _fields(path: Path, column: str) -> Iterator[str]:
    import json

    for row, line in _lines(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise InputError(f"is not JSON ({error}); mend it", where=f"{path}:{row}") from None
        text = record.get(column) if isinstance(record, dict) else None
        if not isinstance(text, str):
            there = ", ".join(record) if isinstance(record, dict) else "no object"
            raise InputError(
                f"no text under {column!r} (there: {there}); pass --column NAME",
                where=f"{path}:{row}",
            )
        if text.strip():
            yield text


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open("rb") as file:
            for row, line in enumerate(file, 1):
                try:
                    text = line.decode("utf-8-sig" if row == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"is not UTF-8 at byte {error.start} of the line; convert the file",
                        where=f"{path}:{row}",
                    ) from None
                yield row, text.removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}); check the name", where=path) from None


def _options(epochs: int, learning_rate: float, seed: int, checkpoint_every: int) -> FitOptions:
    from triaxial.models.fit import FitOptions

    return FitOptions(
        epochs=epochs,
        learning_rate=learning_rate,
        seed=seed,
        checkpoint_every=checkpoint_every,
    )


@contextmanager
def _bar() -> Iterator[Callable[[int, int, float], None] | None]:
    with progress() as told:
        if told is None:
            yield None
            return

        def step(done: int, total: int, loss: float) -> None:
            told("training", done, total)

        yield step


def _tell_dropped(dropped: Mapping[str, int]) -> None:
    if dropped:
        note("dropped: " + ", ".join(f"{n:,} {reason}" for reason, n in dropped.items()))


def _trained(directory: Path, facts: Mapping[str, Any], what: str) -> str:
    history = facts["history"]
    losses = history["epoch_losses"]
    cut = f"; {facts['truncated']:,} cut to fit" if facts["truncated"] else ""
    return (
        f"{directory}: trained on {facts['rows']:,} {what} in {history['steps']:,} steps, mean "
        f"loss of the epochs {' '.join(f'{loss:.3f}' for loss in losses)}{cut}"
    )


def _percent(interval: Mapping[str, float]) -> str:
    value, low, high = (100 * interval[name] for name in ("value", "low", "high"))
    return f"{value:.1f} % [{low:.1f}, {high:.1f}]"


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        print(line)


def _print_json(facts: Mapping[str, Any]) -> None:
    import json

    print(json.dumps(facts, indent=1))
