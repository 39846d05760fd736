"""The command `triax`: parse, call, print. One module a command group.

Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 a gate failed, 2 bad
input, 3 a fault of ours, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from triaxial import __version__
from triaxial.cli.c2gen import app as c2gen_app
from triaxial.cli.console import silenced
from triaxial.cli.demo import demo
from triaxial.cli.merge import app as merge_app
from triaxial.cli.report import report
from triaxial.cli.system import doctor, runs_app
from triaxial.cli.temporal import app as temporal_app
from triaxial.cli.train import mlm_app, nli_app
from triaxial.errors import InputError, TriaxialError
from triaxial.models.distributed import launched

__all__ = ["app", "main"]

app = typer.Typer(
    name="triax",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Stress-test language models: do right answers survive replaced words, recombined "
    "inferences, and time?",
)
app.command()(demo)
app.add_typer(merge_app, name="merge")
app.add_typer(c2gen_app, name="c2gen")
app.add_typer(temporal_app, name="temporal")
app.command()(report)
app.add_typer(nli_app, name="nli")
app.add_typer(mlm_app, name="mlm")
app.add_typer(runs_app, name="runs")
app.command()(doctor)


_INTERRUPTED = 130
_SHARED = (["temporal", "fit"], ["nli", "train"], ["mlm", "train"])  # by what torchrun starts
_GRACE = 10.0  # seconds for torchrun to end the others


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"triax {__version__}")
        raise typer.Exit


_EVERYWHERE = "Everywhere: --config FILE.toml, --quiet (results and warnings alone), --debug."


@app.callback(epilog=_EVERYWHERE)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version  # the callback reads it


def main(arguments: list[str] | None = None) -> None:
    """Entry point: run a command and leave with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    rank, _, size = launched()
    sys.exit(_run(arguments) if size == 1 else _run_shared(arguments, first=rank == 0))


def _run_shared(arguments: list[str], *, first: bool) -> int:
    """One of the processes that torchrun started: the first speaks for all.

    An error of the others is told too, after a moment: where the first has it as well, torchrun has
    ended them by then, and there is one line.
    """
    shared = any(arguments[at : at + 2] in _SHARED for at in range(len(arguments)))
    if first:
        if shared:
            return _run(arguments)
        print(
            "triax: this command runs in one process; torchrun is for temporal fit, nli train and "
            "mlm train: leave it out",
            file=sys.stderr,
        )
        return InputError.exit_code
    said = io.StringIO()
    code = InputError.exit_code
    if shared:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            code = _run(["--quiet", *arguments])
    if code:
        time.sleep(_GRACE)
        sys.stderr.write(said.getvalue())
    return code


def _command() -> Any:
    """The whole command line; every page of help ends alike."""
    command = typer.main.get_command(app)
    waiting = [command]
    while waiting:
        one = waiting.pop()
        one.epilog = _EVERYWHERE
        waiting += getattr(one, "commands", {}).values()
    return command


def _without(arguments: list[str], flag: str) -> tuple[list[str], bool]:
    """The arguments without a flag that may stand anywhere before `--`, and whether it did."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [one for one in arguments[:end] if one != flag]
    return [*kept, *arguments[end:]], len(kept) < end


def _config(arguments: list[str]) -> tuple[list[str], Path | None]:
    """The arguments without `--config FILE`, and the file."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for at, one in enumerate(arguments[:end]):
        name, told, value = one.partition("=")
        if name != "--config":
            continue
        if told:
            return [*arguments[:at], *arguments[at + 1 :]], Path(value).expanduser()
        if at + 1 == end:
            raise InputError("wanted a TOML file behind it", where="--config")
        return [*arguments[:at], *arguments[at + 2 :]], Path(arguments[at + 1]).expanduser()
    return arguments, None


def _run(arguments: list[str]) -> int:
    arguments, debug = _without(arguments, "--debug")
    arguments, quiet = _without(arguments, "--quiet")
    try:
        with silenced(quiet):
            arguments, file = _config(arguments)
            command = _command()
            more = {}
            if file is not None:
                from triaxial.cli.config import defaults

                more = {"default_map": defaults(file, command)}
            # It prints usage errors itself, and leaves with SystemExit whatever happens.
            command(arguments, standalone_mode=True, **more)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else 2
        if code == _INTERRUPTED:
            print(
                "triax: interrupted; committed work is kept, the same command goes on",
                file=sys.stderr,
            )
        return code
    except TriaxialError as error:
        if debug:
            raise
        print(f"triax: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output left (`| head`): that is no failure.
        sys.stdout = None
        return 0
    except Exception as error:
        if debug:
            raise
        print(
            f"triax: a fault of ours: {type(error).__name__}: {error}; "
            "please report it with the output of the same command under --debug",
            file=sys.stderr,
        )
        return 3
    return 0
