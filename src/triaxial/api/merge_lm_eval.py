"""A set as tasks of lm-evaluation-harness: the same prompts there as `--model llm:` asks here.

The folder holds a group of two tasks, the seeds and the variants, with their items, the examples
and the wording verbatim. The items' names stand in the documents, so sample logs can be scored
with `--model lm-eval:SAMPLES`.

Source: lm-evaluation-harness 0.4.13 (task configuration, `multiple_choice`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triaxial.api.merge_files import VariantSet
from triaxial.nli import LABELS, Label
from triaxial.prompts import PromptOptions, answers, prefix, question
from triaxial.store import claim_directory, digest, finish_directory, write_bytes_atomic

if TYPE_CHECKING:
    import polars as pl

__all__ = ["lm_eval_tasks"]

_PARTS = ("seeds", "variants")
_LOADER = '''"""Gives the tasks beside this file their items and examples."""

import json
from pathlib import Path

from datasets import Dataset, DatasetDict

FOLDER = Path(__file__).parent / "data"


def seeds(**_):
    return load("seeds")


def variants(**_):
    return load("variants")


def load(name):
    splits = {"test": name, "examples": "examples"}
    files = {split: FOLDER / f"{file}.jsonl" for split, file in splits.items()}
    return DatasetDict(
        {split: Dataset.from_list(rows(file)) for split, file in files.items() if file.exists()}
    )


def rows(file):
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
'''


def lm_eval_tasks(
    made: VariantSet, items: pl.DataFrame, prompt: PromptOptions, out: Path
) -> list[Path]:
    """Write a task folder for lm-evaluation-harness; the files written.

    Args:
        made: The set.
        items: What a model is asked, see `merge_predict.item_rows`.
        prompt: How it is asked.
        out: A new directory; the group of tasks is called `merge_` and its name.
    """
    about = {"set": made.key, "items": items.to_dicts(), "prompt": prompt}
    claim_directory(out, "merge.lm-eval", digest(about))
    (out / "data").mkdir(exist_ok=True)
    name = "merge_" + re.sub(r"\W+", "_", out.name.strip()).strip("_")
    columns = ("item", "premise", "hypothesis", "label")
    rows = list(items.select(columns).iter_rows())
    ids = {pair.id for pair in made.pairs}
    parts = {
        "seeds": [row for row in rows if row[0] in ids],
        "variants": [row for row in rows if row[0] not in ids],
    }
    files = {f"data/{part}.jsonl": _documents(prompt, found) for part, found in parts.items()}
    if prompt.examples:
        shown = [(p.id, p.premise, p.hypothesis, p.label.value) for p in prompt.examples]
        files["data/examples.jsonl"] = _documents(prompt, shown)
    for part in _PARTS:
        files[f"{name}_{part}.yaml"] = _task(f"{name}_{part}", part, made, prompt)
    files[f"{name}.yaml"] = _yaml(
        {
            "group": name,
            "task": [f"{name}_{part}" for part in _PARTS],
            "aggregate_metric_list": [{"metric": "acc", "weight_by_size": True}],
            "metadata": {"version": 1.0},
        }
    )
    files["data.py"] = _LOADER
    files["README.md"] = _readme(name, made, prompt, parts)
    for file, text in files.items():
        write_bytes_atomic(out / file, text.encode())
    finish_directory(out, {"set": made.key, "tasks": name})
    return [out / file for file in files]


def _documents(prompt: PromptOptions, rows: Iterable[tuple[str, str, str, str]]) -> str:
    lines = []
    for item, premise, hypothesis, label in rows:
        document = {
            "item": item,
            "premise": premise,
            "hypothesis": hypothesis,
            "question": question(prompt, premise, hypothesis),
            "choices": answers(prompt),
            "label": LABELS.index(Label(label)),
        }
        lines.append(json.dumps(document) + "\n")
    return "".join(lines)


def _task(name: str, part: str, made: VariantSet, prompt: PromptOptions) -> str:
    shots = len(prompt.examples)
    said = prefix(PromptOptions(prompt.style, prompt.instruction))
    # A description is a template: marks of templates in it are text.
    description = f"{{% raw %}}{said}{{% endraw %}}" if "{" in said else said
    config: dict[str, Any] = {
        "task": name,
        "output_type": "multiple_choice",
        "test_split": "test",
        "description": description,
        "doc_to_text": "question",
        "doc_to_choice": "choices",
        "doc_to_target": "label",
        "target_delimiter": " ",
        "fewshot_delimiter": "\n\n",
        "num_fewshot": shots,
        "metric_list": [
            {"metric": metric, "aggregation": "mean", "higher_is_better": True}
            for metric in ("acc", "acc_norm")
        ],
        "metadata": {"version": 1.0, "set": made.key, "answers": prompt.style},
    }
    if shots:
        config |= {"fewshot_split": "examples", "fewshot_config": {"sampler": "first_n"}}
    return _yaml(config) + f"custom_dataset: !function data.{part}\n"


def _yaml(config: dict[str, Any]) -> str:
    """JSON is YAML, a line for each name."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in config.items())


def _readme(name: str, made: VariantSet, prompt: PromptOptions, parts: dict[str, list[Any]]) -> str:
    source = made.facts["data"]["source"]
    return f"""# {name}: MERGE variants of {source}

Tasks for [lm-evaluation-harness](https://github.com/EleutherAI/lm-evaluation-harness) 0.4.13:
`{name}_seeds` ({len(parts["seeds"])} items) and `{name}_variants` ({len(parts["variants"])} items),
answered by {prompt.style}, with {len(prompt.examples)} examples. `{name}` is both.

    lm_eval --model hf --model_args pretrained=MODEL,dtype=float32 --tasks {name} \\
        --include_path DIRECTORY_OF_THIS_FILE --log_samples --output_path logs

The harness prints the accuracy over seeds and over variants. Seed-variant accuracy comes from the
sample logs, which it writes to a directory named after the model:

    triax merge evaluate SET --model lm-eval:logs/MODEL --out RUN

with the `--min-variants`, `--draws` and `--seed` of this export. With a chat template, add
`--apply_chat_template --fewshot_as_multiturn` to the first command.

Set key `{made.key}`. The texts derive from the source data, whose licence holds for them.
"""
