# %% [markdown]
# # What does a model forget when it learns in stages?
#
# A composed inference ("A man refuses to sing" against "Somebody sings") needs two parts: what the
# verb says of its complement (V), and a natural inference (N). A model that learns V first and N
# afterwards may lose V; replay and distillation are the remedies. Here on generated items; with a
# copy of SICK, `triax c2gen build` makes real ones.
#
# `--tiny` makes it small enough for a test.

# %%
import sys
import tempfile
from pathlib import Path

from triaxial.api.c2gen import run
from triaxial.api.c2gen_plan import plan
from triaxial.api.report import report, write_report
from triaxial.c2gen.compose import Item
from triaxial.c2gen.grid import Grid, TrainOptions
from triaxial.c2gen.streams import Draw
from triaxial.execute import Computing
from triaxial.models.tiny import tiny_masked
from triaxial.store import table_of, write_jsonl
from triaxial.worlds import compositions

TINY = "--tiny" in sys.argv
work = Path(tempfile.mkdtemp(prefix="triaxial-composition-"))

# %% [markdown]
# ## Items and an encoder

# %%
items = compositions()
(work / "data").mkdir()
write_jsonl(work / "data" / "items.jsonl", table_of(items, Item))
words = {word for one in items for word in f"{one.sent1} {one.mid_sent} {one.sent2}".split()}
encoder = str(tiny_masked(work / "encoder", sorted(words), hidden=16 if TINY else 32))

# %% [markdown]
# ## A grid
# One held-out type, one order, four strategies. The first stage is trained once for all of them.

# %%
grid = Grid(
    encoder,
    folds=(5,),
    streams=("ver-nat",),
    strategies=("none", "er-res", "agem", "kd"),
    seeds=(1,),
    draw=Draw(8 if TINY else 30, 20, 8, 0),
    train=TrainOptions(epochs=1 if TINY else 8, learning_rate=2e-3),
    settings={"memory": 20 if TINY else 60},
)
computing = Computing(store=work / "store")
counted = plan(work / "data", grid, computing)
print(f"{counted['stages']} stages, {counted['without_sharing']} without sharing")
metrics = run(work / "data", grid, computing, work / "run")

# %% [markdown]
# ## Forgotten
# The share of V that was right after the first stage and is not after the second.

# %%
for strategy, one in metrics["streams"]["ver-nat"].items():
    lost = one["forgetting"]["probe"]["forget"]["V"]
    print(f"{strategy}: {lost['value']:.1f} % of V [{lost['low']:.1f}, {lost['high']:.1f}]")

# %% [markdown]
# ## A page for others

# %%
write_report(report({"composition": work / "run"}), work / "report.html")
print(work / "report.html")
