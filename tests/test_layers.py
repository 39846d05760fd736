"""The layer rule of the design, read off the source with `ast`; no exception list."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "triaxial"

# In order: a module imports from lower layers, or from what stands before it in its own folder.
ORDER: dict[tuple[int, str], str] = {
    (0, ""): "errors text stats",
    (1, ""): "nli_rows nli prompts files records store execute_ray execute",
    (2, "models/"): "base batching peak tensors cross_entropy xl_config xl_layer classifier masked "
    "endpoint_wire endpoint_answers endpoint "
    "transformer_xl causal_readers causal choice_scores choice tagger distributed dropout "
    "resume schedule "
    "fit training finetune_masked finetune heads tiny",
    (2, "report/"): "figures page",
    (3, "merge/"): "lexicon targets propose filters queries variants score analyses failing "
    "ratings stages",
    (3, "c2gen/"): "verbs subjects compose sick items build pseudo streams memory grid hooks "
    "beyond strategies train units persona metrics resample paper analyses stages",
    (3, "temporal/"): "corpus_rows corpus planted dedup splits vocabulary segments train "
    "perplexity chronology parameters steps updates dynamic tuning words resample curves slices "
    "emerging change terms drift topics paper analyses stages",
    # The package itself holds the version alone; the command line is one entry.
    (4, ""): "__init__ api/__init__ api/budget api/merge_files api/merge_show api/merge_compare "
    "api/merge_imports api/endpoint_cache api/merge_sources api/merge_predict api/merge_sample "
    "api/merge_lm_eval api/merge "
    "api/merge_plan api/c2gen_data api/c2gen api/c2gen_plan api/c2gen_profile "
    "api/temporal_ingest api/temporal_corpus api/temporal_evaluate api/temporal_adapt api/temporal "
    "api/gates api/report_shown api/report_seeds api/report_merge api/report_c2gen "
    "api/report_temporal api/report api/system "
    "worlds demo cli __main__",
}
STORE = {
    "files",
    "records",
    "store",
    "execute_ray",
    "execute",
}  # the first two are the store's own halves
TORCH = {"torch", "transformers"}
MAY_USE_TORCH = {
    "c2gen/hooks",  # strategies in three files: the hooks, the paper's, the others
    "c2gen/beyond",
    "c2gen/strategies",
    "c2gen/train",
    "temporal/train",
    "temporal/perplexity",
    "temporal/parameters",  # dynamic evaluation in four files
    "temporal/steps",
    "temporal/updates",
    "temporal/dynamic",
    "temporal/tuning",
}
PLACES = {
    folder + name: (layer, folder, position)
    for (layer, folder), names in ORDER.items()
    for position, name in enumerate(names.split())
}
FILES = {
    path.relative_to(PACKAGE).with_suffix("").as_posix(): path for path in PACKAGE.rglob("*.py")
}


def place(module: str) -> tuple[int, str, int] | None:
    """Layer, folder and position of a module; a folder's `__init__` stands before all in it."""
    if module.split("/")[0] == "cli":
        module = "cli"
    if module in PLACES:
        return PLACES[module]
    if module.endswith("/__init__"):
        folder = module.removesuffix("__init__")
        layers = [layer for layer, known in ORDER if known == folder]
        return (layers[0], folder, -1) if layers else None
    return PLACES.get(module)


def typing_only(tree: ast.AST) -> set[ast.AST]:
    """Every node under `if TYPE_CHECKING:`."""
    return {
        node
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test).endswith("TYPE_CHECKING")
        for statement in branch.body
        for node in ast.walk(statement)
    }


def imports(module: str, source: str) -> Iterator[tuple[str, int, bool]]:
    """Dotted name, line and whether for typing only, of every import wherever it stands.

    `from .a import b` gives `triaxial.a.b` when that is a module, else `triaxial.a`.
    """
    tree = ast.parse(source)
    unreal = typing_only(tree)
    package = ["triaxial", *module.split("/")[:-1]]
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            names = [
                f"{start}.{alias.name}" if own(f"{start}.{alias.name}", exact=True) else start
                for alias in node.names
            ]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in (
            "import_module",
            "__import__",
        ):
            # An import by a computed name cannot be seen; a spelled-out one can.
            names = [str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)]
        for name in names:
            yield name, getattr(node, "lineno", 0), node in unreal


def own(name: str, *, exact: bool = False) -> str | None:
    """Our module of a dotted name, as in FILES; None for another package's."""
    parts = name.split(".")
    if parts[0] != "triaxial":
        return None
    path = "/".join(parts[1:])
    found = [m for m in (path, f"{path}/__init__" if path else "__init__") if m in FILES]
    # A module that is not there yet is judged by its name.
    return found[0] if found else (None if exact and path not in PLACES else path)


def faults(module: str, source: str) -> list[str]:
    """What a module's imports do against the rule, one line each."""
    layer, folder, position = place(module) or (0, "", 0)
    entry = layer == 4 or module.endswith("/stages")
    seen = []
    for name, line, unreal in imports(module, source):
        target = own(name)
        where = f"{module}.py:{line}: imports {name}"
        if target is None:
            by_torch = folder == "models/" or module in MAY_USE_TORCH
            if name.split(".")[0] in TORCH and not by_torch and not unreal:
                seen.append(f"{where}, which only models and training modules may")
            continue
        there = place(target)
        if module.endswith("/__init__") and folder:
            seen.append(f"{where}; the __init__ of a folder imports nothing")
        elif there is None:
            seen.append(f"{where}, which has no place in the order")
        elif there[0] == 4 == layer and module.split("/")[0] == "cli" == target.split("/")[0]:
            continue
        elif there[0] > layer or (there[0] == layer and there[1] != folder):
            seen.append(f"{where} of layer {there[0]} {there[1]} into layer {layer} {folder}")
        elif there[0] == layer and there[2] >= position and target != module:
            seen.append(f"{where}, which stands after it in the order")
        elif target in STORE and module not in STORE and not entry:
            seen.append(f"{where}; only stages, api, demo and cli touch the store")
        elif target.endswith("/stages") and layer != 4:
            seen.append(f"{where}; only api, demo and cli import stages")
    return seen


@pytest.mark.parametrize("module", sorted(FILES))
def test_module_has_a_place_a_docstring_and_keeps_the_rule(module: str) -> None:
    assert place(module), f"{module} is not in ORDER of test_layers: give it a place, or fold it"
    source = FILES[module].read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source)), f"{module} has no module docstring"
    lines = source.count("\n")
    assert lines <= 450, f"{module} has {lines} lines, at most 450: split it"
    assert faults(module, source) == []


@pytest.mark.parametrize(
    ("module", "source", "wanted"),
    [
        ("text", "from .errors import InputError", ""),
        ("errors", "from .text import words", "stands after it"),
        ("stats", "def f():\n    from triaxial.nli import Pair", "of layer 1"),
        ("text", "if TYPE_CHECKING:\n    from .nli import Pair", "of layer 1"),
        ("text", "from . import __version__", "of layer 4"),
        ("merge/filters", "from ..models import masked", ""),
        ("merge/filters", "from .score import x", "stands after it"),
        ("merge/score", "import triaxial.c2gen.build", "c2gen/ into layer 3 merge/"),
        ("models/base", "from ..report import page", "report/ into layer 2 models/"),
        ("merge/score", "from ..store import Store", "touch the store"),
        ("merge/score", "from triaxial import files", "touch the store"),
        ("merge/stages", "from ..store import Store\nfrom .score import x", ""),
        ("c2gen/stages", "from ..merge.stages import x", "merge/ into"),
        ("merge/analyses", "from .stages import x", "stands after it"),
        ("api/merge", "from ..merge import stages", ""),
        (
            "cli/merge",
            "from . import common\nfrom ..api import merge\nfrom .. import __version__",
            "",
        ),
        ("api/merge", "from ..cli import main", "stands after it"),
        ("merge/score", "def f():\n    import torch.nn as nn", "only models and training"),
        ("merge/score", "import importlib\nimportlib.import_module('torch')", "only models"),
        ("merge/score", "if TYPE_CHECKING:\n    from torch import Tensor", ""),
        ("c2gen/train", "from torch import nn", ""),
        ("models/masked", "from transformers import AutoModel", ""),
        ("merge/__init__", "from .score import x", "imports nothing"),
        ("api/merge", "from .helpers import x", "no place"),
    ],
)
def test_the_rule_itself(module: str, source: str, wanted: str) -> None:
    seen = faults(module, source)
    assert len(seen) == bool(wanted), seen
    assert wanted in "".join(seen)


def test_command_line_starts_without_heavy_packages() -> None:
    heavy = ["torch", "transformers", "datasets", "polars", "scipy", "sklearn", "inflect"]
    code = f"import sys, triaxial.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(PACKAGE.parent)},
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_what_may_not_use_torch_does_not_load_it_either() -> None:
    """Re-scoring and reports run without torch, also through what they import."""
    light = sorted(
        "triaxial." + module.removesuffix("/__init__").replace("/", ".")
        for module in FILES
        if module not in MAY_USE_TORCH
        and not module.startswith("models/")
        and module not in ("__init__", "__main__")
    )
    code = (
        f"import sys, importlib\nfor name in {light}:\n    importlib.import_module(name)\n"
        f"    assert 'torch' not in sys.modules, name"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(PACKAGE.parent)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
