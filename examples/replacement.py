# %% [markdown]
# # Which words does a model fail on?
#
# MERGE replaces a word that premise and hypothesis share by what a masked language model finds at
# least as likely, and asks whether the answer survives. Here on a generated world, so that nothing
# is fetched: half of the verbs were trained under contradiction alone. Put your own pairs
# (`read_pairs("pairs.csv")`) and models (a directory or a hub id) in their places.
#
# `--tiny` makes it small enough for a test.

# %%
import sys
import tempfile
from collections import Counter
from pathlib import Path

import polars as pl

from triaxial.api.merge import GenerateOptions, run
from triaxial.api.merge_predict import EvaluateOptions
from triaxial.api.merge_show import seed_view
from triaxial.api.report import report, write_report
from triaxial.execute import Computing
from triaxial.merge.score import DrawOptions
from triaxial.models.finetune import train_classifier, train_masked
from triaxial.models.fit import FitOptions
from triaxial.models.tiny import tiny_masked
from triaxial.nli import Reading
from triaxial.store import read_table
from triaxial.worlds import world

TINY = "--tiny" in sys.argv
work = Path(tempfile.mkdtemp(prefix="triaxial-replacement-"))

# %% [markdown]
# ## Two models
# A masked LM that knows the world's words, and a classifier that learned the shortcut.

# %%
made = world(sentences=200 if TINY else 1200, training=120 if TINY else 1200, seeds=24)
start = str(tiny_masked(work / "start", made.words, hidden=32 if TINY else 64))
fit = FitOptions(epochs=1 if TINY else 8, learning_rate=3e-3)
train_masked(start, made.text, work / "mlm", fit, batch_size=64)
train_classifier(start, made.training, work / "nli", fit, batch_size=32)

# %% [markdown]
# ## From seeds to scores
# Called again with the same store, only what is new is computed.

# %%
variants, metrics, _ = run(
    Reading(made.seeds, {}, "a generated world", "1"),
    GenerateOptions(mlm=(str(work / "mlm"),)),
    EvaluateOptions(models=(str(work / "nli"),), draw=DrawOptions(n=5 if TINY else 20)),
    Computing(store=work / "store"),
    work / "run",
)
for model, scored in metrics["models"].items():
    print(f"{model}: {scored['signature']}")
    for kind, one in scored.get("class", {}).items():
        sv = one["sv"][18]
        print(f"  {kind}: SV95 {sv['value']:.1f} [{sv['low']:.1f}, {sv['high']:.1f}]")

# %% [markdown]
# ## The words
# What stands in the wrong variants, most often first.

# %%
predictions = read_table(work / "run" / "predictions.parquet")
wrong: Counter[str] = Counter()
for pair in variants.pairs:
    for row in seed_view(variants, predictions, pair.id).variants:
        if any(label != pair.label for label in row["labels"].values()):
            wrong[f"{row['word']} → {row['replacement']} ({row['pos']})"] += 1
print(pl.DataFrame(wrong.most_common(10), schema=["replacement", "wrong"], orient="row"))

# %% [markdown]
# ## A page for others

# %%
write_report(report({"replacement": work / "run"}), work / "report.html")
print(work / "report.html")
