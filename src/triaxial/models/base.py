"""What every model adapter shares: protocols, where a model lies, what it is, how it computes.

A model is named by a directory or a hub id. `locate` turns the name into files on disk and a
fingerprint (revision and digest of weights, configuration and tokenizer), which enters the key of
everything computed with it.  Code from a model repository is never run and pickled weights are
never opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from triaxial.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerFast

__all__ = [
    "Checkpoint",
    "Hardware",
    "NliModel",
    "Work",
    "autocast",
    "devices",
    "hardware",
    "load_config",
    "load_pretrained",
    "load_tokenizer",
    "locate",
    "longest_input",
    "measured_rate",
    "split_revision",
    "token_flops",
]

Precision = Literal["auto", "fp32", "bf16"]

# Files that decide what a model computes; a README or a training log does not.
_WEIGHTS = "*.safetensors"
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
_PATTERNS = [_WEIGHTS, "*.json", "*.txt", "*.model", "*.jinja"]
# Logs that trainers leave beside a model, ours among them.
_LOGS = {"training.json", "trainer_state.json", "all_results.json", "eval_results.json"}


class NliModel(Protocol):
    """Anything that labels premise-hypothesis pairs."""

    name: str
    fingerprint: dict[str, str]

    def predict(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Log-probabilities of shape (N, 3), columns in the order of `nli.LABELS`."""
        ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model on disk: its name as given, its directory, revision and content digest."""

    name: str
    path: Path
    revision: str
    digest: str

    @property
    def fingerprint(self) -> dict[str, str]:
        """What goes into keys and manifests: never the path, which says nothing of the content."""
        return {"digest": self.digest, "revision": self.revision}


@dataclass(frozen=True, slots=True)
class Hardware:
    """Where and in which precision a model computes: `device` is torch's name for it."""

    device: str
    precision: Literal["fp32", "bf16"]


@dataclass(slots=True)
class Work:
    """Work done by an adapter since it was loaded: the figures behind every claim of speed.

    `tokens` are real ones, `padded` those that were computed with the padding.
    """

    forwards: int = 0
    rows: int = 0
    tokens: int = 0
    padded: int = 0

    def count(self, rows: int, tokens: int, padded: int) -> None:
        """Add one forward."""
        self.forwards += 1
        self.rows += rows
        self.tokens += tokens
        self.padded += padded

    def facts(self) -> dict[str, int]:
        """The counts as a plain dictionary."""
        return asdict(self)


def hardware(device: str = "auto", precision: Precision = "auto") -> Hardware:
    """Settle device and precision.

    `auto` takes bf16 only where the chip multiplies it natively: a CPU without AVX512-BF16 or AMX
    emulates it at an eighth of the fp32 rate.

    Raises:
        InputError: The device is not there, or bf16 was asked for where it would be emulated.
    """
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cpu" and torch.backends.mps.is_available():
            device = "mps"
    try:
        kind = torch.device(device).type
        if kind not in ("cpu", "cuda", "mps"):
            raise RuntimeError(f"a device of the kind {kind}")
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"cannot compute on {device!r} ({reason}); use cpu, cuda, cuda:N or mps", where="device"
        ) from None
    if precision not in ("auto", "fp32", "bf16"):
        raise InputError(f"{precision!r} is not one of auto, fp32, bf16", where="precision")
    native = _has_bf16(kind)
    if precision == "bf16" and not native:
        raise InputError(
            f"bf16 would be emulated on this {kind}, slower than fp32; use auto or fp32",
            where="precision",
        )
    use_bf16 = native if precision == "auto" else precision == "bf16"
    return Hardware(device, "bf16" if use_bf16 else "fp32")


def autocast(where: Hardware) -> contextlib.AbstractContextManager[Any]:
    """Autocast to bf16, or a null context in fp32."""
    import torch

    if where.precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(torch.device(where.device).type, dtype=torch.bfloat16)


def locate(name: str, revision: str | None = None) -> Checkpoint:
    """Find a model in a directory or on the hub, and fingerprint it.

    Raises:
        InputError: No such directory or hub id, no weights as safetensors, no configuration.
    """
    directory = Path(name).expanduser()
    if directory.is_dir():
        path, found = directory, "local"
    elif directory.exists():
        raise InputError("is a file; name a model directory or a hub id", where=name)
    elif name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError("no such model directory", where=name)
    else:
        path = _download(name, revision)
        found = path.name
    if not (path / "config.json").is_file():
        raise InputError("no config.json: not a model directory", where=name)
    weights = sorted(path.glob(_WEIGHTS))
    if not weights:
        hint = "no weights (*.safetensors)"
        if any(path.glob("*.bin")):
            hint += "; it holds *.bin only: load and save it once with save_pretrained"
        raise InputError(hint, where=name)
    return Checkpoint(name, path, found, _digest(path))


def split_revision(name: str) -> tuple[str, str | None]:
    """`NAME@REVISION` in two; a directory keeps an "@" of its own."""
    if Path(name).expanduser().is_dir():
        return name, None
    place, _, revision = name.partition("@")
    return place, revision or None


def load_config(checkpoint: Checkpoint) -> Any:
    """The configuration of a model; code in its repository is refused without a question."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(checkpoint.path, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"its config.json cannot be used: {reason}", where=checkpoint.name
        ) from None


def load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerFast:
    """The fast tokenizer of a model: character offsets are not to be had from a slow one."""
    from transformers import AutoTokenizer

    if not any(any(checkpoint.path.glob(name)) for name in _VOCABULARIES):
        # transformers makes a tokenizer without a word, to which every sentence is unknown.
        raise InputError(
            "no tokenizer files (tokenizer.json); save the tokenizer beside the weights",
            where=checkpoint.name,
        )
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint.path, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"no tokenizer can be loaded: {reason}", where=checkpoint.name) from None
    if not tokenizer.is_fast:
        raise InputError(
            "its tokenizer has no fast version, so words cannot be placed; "
            "save one with tokenizers (tokenizer.json)",
            where=checkpoint.name,
        )
    return cast("PreTrainedTokenizerFast", tokenizer)


def load_pretrained(
    auto: Any,
    checkpoint: Checkpoint,
    *,
    new_head: bool = False,
    **kwargs: Any,
) -> Any:
    """`auto.from_pretrained` in fp32 from the located files, refusing weights left uninitialized.

    transformers only warns when a head has no weights and fills it with random numbers; a model
    like that gives numbers without meaning, so it is refused here.

    Args:
        auto: Class with `from_pretrained`.
        checkpoint: From `locate`.
        new_head: Whether head and pooler are about to be trained, and so may be new.
        kwargs: For `from_pretrained`.
    """
    import torch
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model, report = auto.from_pretrained(
            checkpoint.path,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below, with the name
            trust_remote_code=False,
            **kwargs,
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"cannot be loaded: {reason}", where=checkpoint.name) from None
    except Exception as error:  # safetensors raises a bare exception type of its own
        if type(error).__name__ != "SafetensorError":
            raise
        raise InputError(
            f"its weights are damaged ({error}) and cannot be loaded; fetch them again",
            where=checkpoint.name,
        ) from None
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
    other = sorted(str(key[0]) for key in report["mismatched_keys"])
    if other:
        raise InputError(
            f"{len(other)} weights have another shape than config.json says ({other[0]}, …); "
            "fetch or save the directory again",
            where=checkpoint.name,
        )
    missing = sorted(report["missing_keys"])
    if new_head:
        # A model loaded as its bare body has names without the body's prefix.
        bare = not hasattr(model, model.base_model_prefix)
        body = "" if bare else f"{model.base_model_prefix}."
        lost = [name for name in missing if name.startswith(body) and "pooler" not in name]
        if lost:
            raise InputError(
                f"{len(lost)} weights of the encoder are not in the checkpoint ({lost[0]}, …); "
                "choose another",
                where=checkpoint.name,
            )
    elif missing:
        raise InputError(
            f"{len(missing)} weights are not in the checkpoint ({missing[0]}, …): it was not "
            f"trained as {type(model).__name__}; choose another model or train the head",
            where=checkpoint.name,
        )
    return model


def longest_input(config: Any, tokenizer: PreTrainedTokenizerFast) -> int:
    """Most tokens that a model takes: the smaller of what tokenizer and positions allow."""
    positions = getattr(config, "max_position_embeddings", None) or 1 << 30
    if config.model_type in {"roberta", "xlm-roberta", "camembert", "mpnet", "longformer"}:
        positions -= (config.pad_token_id or 0) + 1  # their positions start behind the padding's
    return min(int(positions), int(tokenizer.model_max_length))


def token_flops(config: Any) -> tuple[float, float]:
    """FLOPs of an encoder: a token through the layers, and one position through the LM head.

    From the configuration alone; attention scores and norms are left out.
    """
    width = getattr(config, "hidden_size", None) or config.d_model
    layers = config.num_hidden_layers
    inner = getattr(config, "intermediate_size", None) or getattr(config, "encoder_ffn_dim", 0)
    inner = inner or 4 * width
    return 2.0 * layers * (4 * width**2 + 2 * width * inner), 2.0 * width * (
        width + config.vocab_size
    )


def devices() -> list[tuple[str, str]]:
    """Names of the devices here, and what each is."""
    import torch

    found = [("cpu", f"{torch.get_num_threads()} threads")]
    for number in range(torch.cuda.device_count()):
        found.append((f"cuda:{number}", torch.cuda.get_device_name(number)))
    if torch.backends.mps.is_available():
        found.append(("mps", "Apple GPU"))
    return found


def measured_rate(where: Hardware) -> float:
    """FLOPs a second of a plain matrix product in the chosen precision, measured for a moment."""
    import time

    import torch

    kind = torch.bfloat16 if where.precision == "bf16" else torch.float32
    left = torch.ones((1024, 768), dtype=kind, device=where.device)
    right = torch.ones((768, 768), dtype=kind, device=where.device)
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(4):
            product = left @ right
        product[0, 0].item()  # waits for the device
        seconds = time.perf_counter() - start
        best = max(best, 4 * 2 * left.shape[0] * right.numel() / seconds)
    return best


@contextlib.contextmanager
def evaluation(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the mode it was in comes back afterwards."""
    import torch

    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)


def _has_bf16(kind: str) -> bool:
    import torch

    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if kind == "cpu":
        flags = (getattr(torch.cpu, name, None) for name in _CPU_BF16)
        return any(flag() for flag in flags if flag is not None)
    return False


_CPU_BF16 = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_PATTERNS))
    except GatedRepoError:
        reason = "it is gated: accept its terms on the hub and log in"
    except (RepositoryNotFoundError, HFValidationError):
        reason = "no such directory here and no such model on the hub"
    except RevisionNotFoundError:
        reason = f"it has no revision {revision!r}"
    except Exception as error:  # the hub client raises many kinds when the network is away
        reason = (
            f"the hub cannot be reached and it is not in the local cache ({type(error).__name__})"
        )
    raise InputError(f"{reason}; give a local directory or another id", where=name)


def _digest(path: Path) -> str:
    whole = hashlib.sha256()
    files = {file for pattern in _PATTERNS for file in path.glob(pattern)}
    for file in sorted(files):
        if file.name in _LOGS:
            continue
        if file.name == "config.json":
            # The configuration records the library that saved it, which changes nothing.
            try:
                config = json.loads(file.read_bytes())
            except ValueError:
                config = None
            if not isinstance(config, dict):
                raise InputError("its config.json is damaged; fetch it again", where=path)
            config.pop("transformers_version", None)
            part = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
        else:
            seen = file.stat()
            part = _file_digest(file, seen.st_size, seen.st_mtime_ns)
        whole.update(f"{file.name}\0{part}\n".encode())
    return whole.hexdigest()


@cache
def _file_digest(file: Path, size: int, changed: int) -> str:
    """The sha256 of a file as it is now; weights of many GB are read once a process."""
    del size, changed  # of the file when it was read: another state is another call
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
