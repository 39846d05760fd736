"""The options of `triax temporal`, and how their values are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from triaxial.errors import InputError

__all__ = ["numbers", "pairs"]

_DATA, _DEDUP, _TEST, _TRAIN = "Data", "Duplicates", "Test", "Training documents"
_MODEL, _PIECES, _FIT, _SCORING = "Model", "Vocabulary", "Training", "Scoring"
_ADAPT, _FIGURES, _COSTS, _OUT = "Adapting", "Figures", "Costs of remedies", "Output"

CorpusDir = Annotated[
    Path,
    typer.Option("--corpus", help="Directory of `triax temporal ingest`.", show_default=False),
]
SplitDir = Annotated[
    Path,
    typer.Option("--split", help="Directory of `triax temporal split`.", show_default=False),
]
SplitMaybe = Annotated[
    Path | None,
    typer.Option("--split", help="Directory of `triax temporal split`.", show_default=False),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        help="Directory for the result; the same command again goes on where it was stopped.",
        show_default=False,
        rich_help_panel=_OUT,
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Of everything drawn at random.")]
Workers = Annotated[
    int, typer.Option(min=1, help="Processes for reading or tagging.", rich_help_panel="Computing")
]
BinOption = Annotated[
    Literal["month", "quarter", "half", "year"], typer.Option("--bin", help="Span of time.")
]

# plant

PlantOut = Annotated[
    Path,
    typer.Option("--out", help="JSONL file; NAME.truth.json beside it.", show_default=False),
]
PlantDocuments = Annotated[int, typer.Option(help="Documents, spread evenly over the months.")]
PlantFirst = Annotated[str, typer.Option(help="First month.")]
PlantMonths = Annotated[int, typer.Option(help="Months.")]
PlantSentences = Annotated[int, typer.Option(help="Sentences of a document, on average.")]
PlantDrift = Annotated[
    float, typer.Option(help="Change of a word's log share a year, standard deviation.")
]
PlantTopics = Annotated[float, typer.Option(help="Change of a topic's log share a year, at most.")]
PlantNew = Annotated[int, typer.Option(help="New words that appear.")]
PlantShare = Annotated[float, typer.Option(help="Share of documents with one of them.")]
PlantStationary = Annotated[
    bool, typer.Option("--stationary", help="No drift: all is there from the first month on.")
]

# ingest

Sources = Annotated[
    list[str],
    typer.Argument(
        help="FORMAT:WHERE or a path: .jsonl, .csv, .tsv (or these with .gz), .parquet, "
        "`text:DIRECTORY` with --pattern, `hub:REPOSITORY[:CONFIGURATION]`.",
        show_default=False,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(help="Column names: `id=a,date=b,text=c,source=d`.", rich_help_panel=_DATA),
]
HubSplit = Annotated[
    str | None, typer.Option("--hub-split", help="Of a hub data set.", rich_help_panel=_DATA)
]
Pattern = Annotated[
    str | None,
    typer.Option(
        help="File names of text:DIRECTORY: `news-{year}-{month}-{day}*.txt`.",
        rich_help_panel=_DATA,
    ),
]
OnBad = Annotated[
    Literal["refuse", "drop"],
    typer.Option(help="A bad row is refused, or dropped and counted.", rich_help_panel=_DATA),
]
Crawled = Annotated[
    str | None,
    typer.Option(help="Date of the crawl; later documents are flagged.", rich_help_panel=_DATA),
]
Language = Annotated[
    str, typer.Option(help="Language that is kept, ISO 639-1, or `any`.", rich_help_panel=_DATA)
]
KeepDuplicates = Annotated[
    bool,
    typer.Option("--keep-duplicates", help="Keep near-duplicates.", rich_help_panel=_DEDUP),
]
Threshold = Annotated[
    float,
    typer.Option(
        "--threshold", help="Jaccard similarity of a near-duplicate.", rich_help_panel=_DEDUP
    ),
]
Shingle = Annotated[int, typer.Option(help="Words of a shingle.", rich_help_panel=_DEDUP)]

# split

TestFrom = Annotated[
    str, typer.Option(help="First test month.", show_default=False, rich_help_panel=_TEST)
]
TestTo = Annotated[
    str, typer.Option(help="Last test month.", show_default=False, rich_help_panel=_TEST)
]
PerMonth = Annotated[
    int,
    typer.Option(
        min=0, help="Test documents of each month (or bin); 0 for all.", rich_help_panel=_TEST
    ),
]
Shift = Annotated[
    int, typer.Option(min=0, help="Years by which all is earlier.", rich_help_panel=_TEST)
]
AllowEmpty = Annotated[
    bool,
    typer.Option(
        "--allow-empty", help="Test months may be without documents.", rich_help_panel=_TEST
    ),
]
Gap = Annotated[
    int,
    typer.Option(min=0, help="Months between training and the test.", rich_help_panel=_TRAIN),
]
ValidMonths = Annotated[
    int,
    typer.Option(min=0, help="Months of validation, the first of the gap.", rich_help_panel=_TRAIN),
]
Size = Annotated[
    int | None,
    typer.Option(min=1, help="Most documents or words, the latest. [all]", rich_help_panel=_TRAIN),
]
SizeIn = Annotated[
    Literal["documents", "words"], typer.Option(help="What --size counts.", rich_help_panel=_TRAIN)
]
Valid = Annotated[
    int | None,
    typer.Option(min=1, help="Most validation documents. [all]", rich_help_panel=_TRAIN),
]
NoControl = Annotated[
    bool, typer.Option("--no-control", help="TIME-STRATIFIED alone.", rich_help_panel=_TRAIN)
]
Group = Annotated[
    str | None,
    typer.Option(
        help="Documents of one group stay together: `date`, `source`, `id`, or one of these with "
        "a regular expression, `id:^[^/]+`.",
        rich_help_panel=_TRAIN,
    ),
]
NoNearDuplicates = Annotated[
    bool,
    typer.Option(
        "--no-near-duplicates",
        help="Do not compare the texts of test documents with all others.",
        rich_help_panel=_TRAIN,
    ),
]
GapSeries = Annotated[
    str | None,
    typer.Option(
        help="Several splits of one size whose training ends earlier and earlier, in directories "
        "`gap-NNN`: MONTHSxTIMES, such as 6x11.",
        rich_help_panel=_TRAIN,
    ),
]

# fit

Setup = Annotated[
    Literal["time-stratified", "control"],
    typer.Option(help="Which training part of the split.", rich_help_panel=_MODEL),
]
Preset = Annotated[
    str,
    typer.Option(
        "--model",
        help="`tiny`, `small`, `paper`, `paper-large` (Transformer-XL); or another causal LM from "
        "scratch: a configuration (.json) or a hub id.",
        rich_help_panel=_MODEL,
    ),
]
Borders = Annotated[
    Literal["carry", "reset"],
    typer.Option(help="A document sees those before it, or none.", rich_help_panel=_MODEL),
]
FitWindow = Annotated[
    int | None,
    typer.Option("--window", min=1, help="Pieces of a segment or window.", rich_help_panel=_MODEL),
]
Kind = Annotated[
    Literal["unigram", "bpe"],
    typer.Option("--kind", help="SentencePiece or byte-level.", rich_help_panel=_PIECES),
]
Pieces = Annotated[int, typer.Option("--pieces", help="How many.", rich_help_panel=_PIECES)]
PieceDocuments = Annotated[
    int | None,
    typer.Option(
        "--piece-documents", help="Most documents to learn from. [all]", rich_help_panel=_PIECES
    ),
]
Foreign = Annotated[
    Path | None,
    typer.Option(
        "--foreign-vocabulary",
        help="Model directory whose pieces are taken instead: the test of a tokenizer's age.",
        rich_help_panel=_PIECES,
    ),
]
Epochs = Annotated[int, typer.Option(min=1, help="Passes.", rich_help_panel=_FIT)]
MaxSteps = Annotated[
    int | None, typer.Option(min=1, help="Updates, whatever --epochs.", rich_help_panel=_FIT)
]
Rate = Annotated[float, typer.Option(help="The highest learning rate.", rich_help_panel=_FIT)]
Rows = Annotated[int, typer.Option(min=1, help="Streams or windows.", rich_help_panel=_FIT)]
Held = Annotated[
    int,
    typer.Option(
        "--validation", min=0, help="Validation documents scored at the end.", rich_help_panel=_FIT
    ),
]
Every = Annotated[
    int, typer.Option(min=1, help="Updates between two checkpoints.", rich_help_panel=_FIT)
]

# evaluate, adapt

Model = Annotated[
    str,
    typer.Argument(help="Directory or hub id (`id@revision`) of a causal LM.", show_default=False),
]
Cutoff = Annotated[
    str | None,
    typer.Option(
        help="Last month of its training; needed for a model that was not trained here.",
        rich_help_panel=_MODEL,
    ),
]
ModelSetup = Annotated[
    Literal["time-stratified", "control"] | None,
    typer.Option(
        "--setup", help="What it was trained on. [as it says, or the past]", rich_help_panel=_MODEL
    ),
]
SizeName = Annotated[
    str | None,
    typer.Option(
        "--size", help="A name for its size. [its width and depth]", rich_help_panel=_MODEL
    ),
]
OnValid = Annotated[
    bool,
    typer.Option("--valid", help="Score the validation documents.", rich_help_panel=_SCORING),
]
Window = Annotated[
    int | None,
    typer.Option(min=1, help="Tokens that a model without memory sees.", rich_help_panel=_SCORING),
]
Stride = Annotated[
    int | None,
    typer.Option(
        min=1, help="Tokens between two windows. [half a window]", rich_help_panel=_SCORING
    ),
]
MemoryOption = Annotated[
    int | None,
    typer.Option(
        "--memory", min=0, help="Tokens a Transformer-XL remembers.", rich_help_panel=_SCORING
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        help="Token between documents, where the tokenizer has no start mark.",
        rich_help_panel=_SCORING,
    ),
]
Parameters = Annotated[
    str,
    typer.Option(
        help="What moves, with commas for several runs: all, embeddings, output, biases, lora, "
        "lora-R, last-N.",
        rich_help_panel=_ADAPT,
    ),
]
Rule = Annotated[
    Literal["sgd", "rms"],
    typer.Option(help="Plain, or Krause's with decay.", rich_help_panel=_ADAPT),
]
AdaptRate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        help="Taken as it is. [chosen on validation documents]",
        rich_help_panel=_ADAPT,
    ),
]
Decay = Annotated[
    float, typer.Option(help="Beside --learning-rate, for rms.", rich_help_panel=_ADAPT)
]
Rates = Annotated[
    str | None,
    typer.Option(help="Learning rates to choose from: `0.01,0.03`.", rich_help_panel=_ADAPT),
]
Decays = Annotated[
    str | None, typer.Option(help="Decays to choose from, for rms.", rich_help_panel=_ADAPT)
]
Epsilon = Annotated[float | None, typer.Option(help="For rms.", rich_help_panel=_ADAPT)]
Reset = Annotated[
    Literal["never", "month"],
    typer.Option(help="When the trained weights come back.", rich_help_panel=_ADAPT),
]
Streams = Annotated[
    int,
    typer.Option(
        min=1, help="Documents side by side: faster, fewer updates.", rich_help_panel=_ADAPT
    ),
]
ValidDocuments = Annotated[
    int, typer.Option(min=1, help="Most of them to choose on.", rich_help_panel=_ADAPT)
]
StatisticsDocuments = Annotated[
    int, typer.Option(min=1, help="Training documents, for rms.", rich_help_panel=_ADAPT)
]

# analyse

Evaluations = Annotated[
    list[str],
    typer.Argument(
        help="Directories of `evaluate` and `adapt`, or NAME=DIRECTORY.", show_default=False
    ),
]
CorpusMaybe = Annotated[
    Path | None,
    typer.Option(
        "--corpus", help="For topics and emerging words, with --split.", rich_help_panel=_FIGURES
    ),
]
OutMaybe = Annotated[
    Path | None,
    typer.Option("--out", help="Directory for metrics.json.", rich_help_panel=_OUT),
]
Origin = Annotated[
    str | None,
    typer.Option(
        "--cutoff",
        help="Month from which curves count. [the split's, or the first test month]",
        rich_help_panel=_FIGURES,
    ),
]
Least = Annotated[
    int,
    typer.Option("--least", min=1, help="Mentions of an emerging word.", rich_help_panel=_FIGURES),
]
Ratio = Annotated[
    float,
    typer.Option(help="How much rarer in training it is, if not unseen.", rich_help_panel=_FIGURES),
]
Reference = Annotated[
    int,
    typer.Option(min=2, help="Bins that set the alarm's level.", rich_help_panel=_FIGURES),
]
Terms = Annotated[
    str | None,
    typer.Option(help="Words to follow over time, with commas.", rich_help_panel=_FIGURES),
]
Topics = Annotated[int, typer.Option(min=0, help="Topics; 0 for none.", rich_help_panel=_FIGURES)]
TaggerOption = Annotated[
    str,
    typer.Option(
        "--tagger",
        help="`hanta`, `spacy:NAME_OR_DIRECTORY`, or `none`.",
        rich_help_panel=_FIGURES,
    ),
]
NoMatch = Annotated[
    bool,
    typer.Option(
        "--no-match", help="No slopes with the same mix of sources.", rich_help_panel=_FIGURES
    ),
]
RetrainCost = Annotated[float | None, typer.Option(help="One retraining.", rich_help_panel=_COSTS)]
StaleCost = Annotated[
    float | None,
    typer.Option(help="A month with perplexity 1 % too high.", rich_help_panel=_COSTS),
]
AdaptCost = Annotated[
    float, typer.Option(help="A month of dynamic evaluation.", rich_help_panel=_COSTS)
]


def pairs(text: str | None, where: str, wanted: str) -> dict[str, str]:
    """`a=b,c=d` as a mapping.

    Raises:
        InputError: It cannot be read, or a name stands twice.
    """
    found: dict[str, str] = {}
    for part in (text or "").split(",") if text else ():
        name, sign, value = (one.strip() for one in part.partition("="))
        if not (name and sign and value) or name in found:
            raise InputError(f"cannot read {part!r}; write {wanted}, each once", where=where)
        found[name] = value
    return found


def numbers(text: str | None, where: str) -> tuple[float, ...]:
    """`0.1,0.3` as numbers.

    Raises:
        InputError: It cannot be read.
    """
    if text is None:
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"cannot read {text!r}; write numbers with commas, such as 0.01,0.03", where=where
        ) from None
