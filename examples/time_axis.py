# %% [markdown]
# # How fast does a language model go stale?
#
# A model trained on the past is read against one trained on as many documents of the test's own
# months (CONTROL); dynamic evaluation lets it learn from what it was just scored on. Here on
# generated documents whose words drift; `ingest` reads your own JSONL, CSV, Parquet or text files.
#
# `--tiny` makes it small enough for a test.

# %%
import sys
import tempfile
from pathlib import Path

from triaxial.api.report import report, write_report
from triaxial.api.temporal import AnalyseOptions, analyse, fit
from triaxial.api.temporal_adapt import AdaptRequest, adapt
from triaxial.api.temporal_corpus import split_corpus
from triaxial.api.temporal_evaluate import evaluate
from triaxial.api.temporal_ingest import ingest
from triaxial.execute import Computing
from triaxial.models.fit import FitOptions
from triaxial.models.xl_config import XLConfig
from triaxial.store import table_of, write_jsonl
from triaxial.temporal.analyses import SummaryOptions
from triaxial.temporal.corpus import Document
from triaxial.temporal.planted import PlantOptions, plant
from triaxial.temporal.splits import SplitOptions
from triaxial.temporal.topics import TopicOptions
from triaxial.temporal.train import TrainOptions
from triaxial.temporal.vocabulary import VocabularyOptions

TINY = "--tiny" in sys.argv
work = Path(tempfile.mkdtemp(prefix="triaxial-time-"))
computing = Computing(store=work / "store")

# %% [markdown]
# ## Dated documents
# Content words drift, new words appear, function words stay.

# %%
asked = PlantOptions(documents=240 if TINY else 1920, months=24, drift=0.4, new_words=6)
documents, truth = plant(asked)
write_jsonl(work / "documents.jsonl", table_of(documents, Document))
ingest([str(work / "documents.jsonl")], work / "corpus", computing=computing, duplicates=True)

# %% [markdown]
# ## Two training sets of one size
# The last six months are the test; half of their documents are left for CONTROL.

# %%
months = SplitOptions("2011-07", "2011-12", per_month=asked.documents // 48, gap=2, valid_months=2)
split_corpus(work / "corpus", work / "split", months)

# %% [markdown]
# ## Two models, and the past one adapted

# %%
shape = XLConfig(512, d_model=32 if TINY else 64, heads=2, layers=2, d_inner=128)
train = TrainOptions(shape, fit=FitOptions(epochs=1 if TINY else 6, learning_rate=5e-3))
runs = {}
for name, setup in (("past", "time-stratified"), ("control", "control")):
    model = work / name
    vocabulary = VocabularyOptions(size=512)
    fit(work / "corpus", work / "split", model, setup, train, vocabulary, computing)
    runs[name] = work / f"{name}-test"
    evaluate(str(model), work / "corpus", runs[name], work / "split", computing=computing)
request = AdaptRequest(parameters=("biases",), valid_documents=20, rates=(0.03, 0.1))
past = str(work / "past")
adapt(past, work / "corpus", work / "adapted", work / "split", request, computing=computing)
runs["adapted"] = work / "adapted" / "biases"

# %% [markdown]
# ## What age costs

# %%
options = AnalyseOptions(SummaryOptions(least=5), topics=TopicOptions(topics=3))
metrics = analyse(runs, work / "corpus", work / "split", options, computing, out=work / "drift")
for signature in metrics["signatures"].values():
    print(signature)
for word in metrics["emerging"]["top"][:5]:
    print(word["text"], word["month"], word["perplexity"])

# %% [markdown]
# ## A page for others

# %%
write_report(report({"time": work / "drift"}), work / "report.html")
print(work / "report.html")
