"""lm-evaluation-harness on a local JSONL task, by its rolling log-likelihood: its documented way.

Runs in an environment of its own, so it imports nothing of ours. The job named on the command line
says where the model and the task's documents lie; each line on standard input asks for one
evaluation with a batch size, each line on standard output answers with the seconds of
`loglikelihood_rolling` (tokenizing and forwards; building the task and its metrics are not in it),
the forwards and padded tokens, and the log-likelihood of every document.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

TASK = "triaxial_documents"


def main() -> None:
    """Load once, then evaluate as often as asked."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    import torch

    job = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(job["threads"])
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    folder = Path(job["folder"])
    (folder / f"{TASK}.yaml").write_text(
        json.dumps(  # JSON is YAML
            {
                "task": TASK,
                "dataset_path": "json",
                "dataset_kwargs": {"data_files": {"test": job["documents"]}},
                "test_split": "test",
                "output_type": "loglikelihood_rolling",
                "doc_to_text": "",
                "doc_to_target": "{{text}}",
                "metric_list": [{"metric": "bits_per_byte"}],
            }
        )
    )
    lm: Any = HFLM(
        pretrained=job["model"],
        device="cpu",
        dtype="float32",
        max_length=job["window"],
        batch_size=1,
    )
    tasks = TaskManager(include_path=str(folder), include_defaults=False)
    count = {"forwards": 0, "padded": 0}

    def counted(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        count["forwards"] += 1
        count["padded"] += (args[0] if args else kwargs["input_ids"]).numel()

    lm.model.register_forward_pre_hook(counted, with_kwargs=True)
    rolling = lm.loglikelihood_rolling
    seconds: list[float] = []

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        found = rolling(*args, **kwargs)
        seconds.append(time.perf_counter() - start)
        return found

    lm.loglikelihood_rolling = timed
    packages = ("lm_eval", "torch", "transformers")
    versions = {name: metadata.version(name) for name in packages}
    _say(replies, versions=versions, threads=torch.get_num_threads())
    for line in sys.stdin:
        lm.batch_size_per_gpu = json.loads(line)["batch"]
        count.update(forwards=0, padded=0)
        seconds.clear()
        found = simple_evaluate(
            model=lm, tasks=[TASK], task_manager=tasks, log_samples=True, bootstrap_iters=0
        )
        samples = sorted(found["samples"][TASK], key=lambda sample: sample["doc_id"])
        totals = [_total(sample["resps"]) for sample in samples]
        _say(replies, seconds=sum(seconds), totals=totals, **count)


def _total(found: Any) -> float:
    """The one number in the lists that wrap an answer."""
    while isinstance(found, list | tuple):
        (found,) = found
    return float(found)


def _say(replies: Any, **what: Any) -> None:
    replies.write(json.dumps(what) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
