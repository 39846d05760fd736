"""The command `triax`: parse, call, print. One module a command group.

Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 a gate failed, 2 bad
input, 3 a fault of ours, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from triaxial import __version__
from triaxial.cli.c2gen import app as c2gen_app
from triaxial.cli.demo import demo
from triaxial.cli.merge import app as merge_app
from triaxial.cli.temporal import app as temporal_app
from triaxial.cli.train import mlm_app, nli_app
from triaxial.errors import TriaxialError

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
app.add_typer(merge_app, name="merge")
app.add_typer(c2gen_app, name="c2gen")
app.add_typer(temporal_app, name="temporal")
app.add_typer(nli_app, name="nli")
app.add_typer(mlm_app, name="mlm")
app.command()(demo)


_INTERRUPTED = 130


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"triax {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del debug, version  # `main` and the callback read them


def main(arguments: list[str] | None = None) -> None:
    """Entry point: run a command and leave with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    debug = "--debug" in arguments
    try:
        # typer prints usage errors itself, and leaves with SystemExit whatever happens.
        app(arguments, standalone_mode=True)
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
