"""Registers commands and turns their errors into sentences and exit codes."""

from __future__ import annotations

import functools
import importlib
import logging
import re
import sys
from collections.abc import Callable, Container, Sequence
from typing import Annotated, Any

import typer

from hcdc.cli import _interrupt
from hcdc.cli._show import is_stdout, json_alone, printable
from hcdc.core.errors import HcdcError, InputError
from hcdc.core.plugins import import_module_or_file, load_plugins
from hcdc.core.records import version

FLAGS = ("train_size", "val_size", "train_method", "val_method", "truth_epochs", "full_recipe")
"""Library arguments that are flags on the command line."""

NAMED = (
    "truth:",
    "candidates ",
    "space '",
    "target '",
    "budget '",
    "probes ",
    "k ",
    "confirm ",
    "against '",
    "group '",
    "backend '",
    "address '",
    "sampler '",
    "storage '",
    "trials ",
    "rungs ",
    "known:",
)
"""Sentences that begin with the name of an argument which is a flag."""
IN_WORDS = {
    "a name (see hcdc.datasets.NAMES)": "a name (cora, cifar10, digits, embedded, ...)",
    ", or pass split=(train, val, test)": "",
    " (split='seeded' makes a new one)": "",
    "backend='ray'": "--backend ray",
    " or pass one of Optuna's, such as optuna.samplers.GPSampler()": "; Python takes others too",
    "; split='seeded' makes a new one": "",
    "target=": "--target",
}
"""What the library says to Python, and what the command line says instead."""

app = typer.Typer(
    name="hcdc",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def run(argv: Sequence[str] | None) -> None:
    """Parse the command line and run the command; always raises `SystemExit`."""
    try:
        code = app(args=None if argv is None else list(argv), prog_name="hcdc", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # versions of typer differ in the classes they raise
        if _interrupt.is_interruption(error):
            raise SystemExit(_interrupted().exit_code) from None
        told, context = getattr(error, "format_message", None), getattr(error, "ctx", None)
        if told is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[union-attr]
            raise SystemExit(2) from None
        text, path = told().rstrip("."), "hcdc" if context is None else context.command_path
        sentence = f"{text[:1].lower()}{text[1:]}; '{path} --help' shows what is allowed"
        raise SystemExit(_stop(sentence, 2).exit_code) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Register a command; its errors become sentences."""

    @functools.wraps(function)
    def guarded(**options: Any) -> None:
        options["quiet"] = options["quiet"] or is_stdout(options["json_file"])
        _configure_logging()
        with _interrupt.one_sentence_while_loading():
            importlib.import_module("hcdc.experiments")  # with torch, which the help does without
        try:
            with json_alone(options["json_file"]):
                load_plugins()
                for module in options.get("imports") or ():
                    import_module_or_file(module)
                function(**options)
        except (typer.Exit, BrokenPipeError):  # typer ends quietly where the reader of a pipe has gone
            raise
        except (Exception, KeyboardInterrupt) as error:
            if _interrupt.is_interruption(error):
                raise _interrupted(error) from None
            if options["debug"]:
                raise
            if isinstance(error, HcdcError):
                code = 2 if isinstance(error, InputError) else 1
                raise _stop(as_flags(str(error), options), code) from None
            reason = f"{type(error).__name__}: {error}"
            raise _stop(f"internal error ({reason}); --debug shows where", 1) from None

    return app.command()(guarded)


def _stop(sentence: str, code: int) -> typer.Exit:
    typer.echo(f"hcdc: {printable(sentence)}", err=True)
    return typer.Exit(code)


def _interrupted(error: BaseException | None = None) -> typer.Exit:
    told = isinstance(error, _interrupt.Interrupted)
    return _stop(str(error) if told else _interrupt.SENTENCE, _interrupt.EXIT_CODE)


def as_flags(text: str, options: Container[str] = FLAGS) -> str:
    """Replace argument names of the library by the flags of the command line.

    Args:
        text: What the library says.
        options: Options of the command: only these become flags, and a rung is named by ``--rung`` or among
            ``--rungs``.
    """
    from hcdc.datasets import OBJECTS

    for name in (name for name in FLAGS if name in options):  # whole words only: a path may contain one
        text = re.sub(rf"(?<![\w/.\\-]){name}(?![\w/\\-]|\.\w)", f"--{name.replace('_', '-')}", text)
    for python, words in {OBJECTS: "", **IN_WORDS}.items():
        text = text.replace(python, words)
    if text.startswith("rung '") and "rungs" in options:
        return f"--rungs: {text}"
    named = (*NAMED, "rung '") if "rung" in options else NAMED
    return f"--{text}" if text.startswith(named) else text


def _configure_logging() -> None:
    """Send warnings to stderr; `show_progress` sets the level."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("hcdc")
    log.handlers[:] = [handler]
    log.setLevel(logging.WARNING)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hcdc {version()}")
        raise typer.Exit


@app.callback()
def _top(
    show: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Search models on cheap stand-ins for a full training, and measure how far to trust them."""
