"""The command ``hcdc``: parse, call, print.

Errors are one sentence on stderr: exit code 2 for input that cannot be used (nothing is written then), 1 for
a computation that failed, 130 for Ctrl-C. Tracebacks appear only with ``--debug``.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Optional

import torch
import typer
from rich.console import Console
from rich.table import Table

import hcdc
from hcdc.condensers import (
    Plan,
    alignment_words,
    companion_configs,
    plan,
    point_count,
    probe_configs,
)
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import HcdcError, InputError, unknown_name
from hcdc.core.files import write_atomic
from hcdc.core.progress import Progress, duration
from hcdc.core.recipe import Recipe
from hcdc.core.records import device_name, jsonable, version
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import CondensedDataset, GraphData, ImageData, Images, TableData
from hcdc.evaluation import checked_judges, reopen_task
from hcdc.experiments import run_demo, run_image_demo
from hcdc.reporting import (
    COLUMNS,
    Row,
    belongs,
    evaluations_of,
    findings,
    payment,
    read_evaluation,
    summary_table,
    validation_choice,
    write_report,
)
from hcdc.spaces import Space, from_spec
from hcdc.tasks import GraphTask, ImageTask, TableTask
from hcdc.training import run_candidates
from hcdc.truth import BENCHMARKS, NASBench201Table, TableTruth, Truth

SPACES = {"graph": ("polynomial-filter", "gnn-zoo"), "image": ("nasbench201",)}
"""Search spaces by kind of data, the default first; a table brings its own."""
TAKES = {
    **dict.fromkeys(("reach", "gcond", "gcondx"), ("graph",)),
    **dict.fromkeys(("dc", "dsa", "dm", "kip", "tm"), ("image",)),
    **dict.fromkeys(("kcenter", "herding"), ("graph", "image")),
}
"""Kinds of data that a method condenses; those that are not named take all."""
FLAGS = ("train_size", "val_size", "train_method", "val_method", "truth_epochs", "full_recipe")
"""Arguments of the library whose name a user of the command knows as a flag."""
STARTED_FROM_REAL = ("aligned", "both", "probes")
"""Ways to learn S_val that begin at random real examples."""

app = typer.Typer(
    name="hcdc",
    help="Make a data set small enough to search on, and find out how far its ranking can be trusted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# the first versions of typer 0.12 do not know the spelling ``int | None``
MaybeInt = Optional[int]  # noqa: UP045
MaybePath = Optional[Path]  # noqa: UP045
MaybeText = Optional[str]  # noqa: UP045
MaybeTexts = Optional[list[str]]  # noqa: UP045
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Decides every random draw.")]
DeviceOption = Annotated[
    str, typer.Option("--device", help="auto, cpu or cuda; auto takes cuda where there is one.")
]
JsonOption = Annotated[
    MaybePath,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON ('-' is standard output)."),
]
TruthOption = Annotated[
    MaybePath,
    typer.Option(
        "--truth", metavar="FILE", help="A NAS-Bench-201 table (.csv, .csv.gz) in place of full trainings."
    ),
]
TruthDataOption = Annotated[
    MaybeText,
    typer.Option(
        "--truth-dataset", help="cifar10 or cifar100, where --truth cannot tell by the data's name."
    ),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Say only where the result is.")]
UnusedSeed = Annotated[
    int, typer.Option("--seed", min=0, help="Taken by every command; nothing is random in this one.")
]
UnusedDevice = Annotated[
    str, typer.Option("--device", help="Taken by every command; nothing is computed in this one.")
]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; always leaves by `SystemExit`."""
    try:
        code = app(args=None if argv is None else list(argv), prog_name="hcdc", standalone_mode=False)
    except Exception as error:  # typer has classes of its own, or click's, by its version
        told, context = getattr(error, "format_message", None), getattr(error, "ctx", None)
        if told is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
            raise SystemExit(2) from None
        text, command = told().rstrip("."), "hcdc" if context is None else context.command_path
        sentence = f"{text[:1].lower()}{text[1:]}; '{command} --help' shows what is allowed"
        raise SystemExit(_stop(sentence, 2).exit_code) from None
    raise SystemExit(code if isinstance(code, int) else 0)


# --- errors, progress, text ---------------------------------------------------------------------------------


def _command(function: Callable[..., None]) -> Callable[..., None]:
    """Register a command whose errors are sentences."""

    @functools.wraps(function)
    def run(**options: Any) -> None:
        options["quiet"] = options["quiet"] or _is_stdout(options["json_file"])
        _configure_logging()
        try:
            function(**options)
        except KeyboardInterrupt:
            raise _stop("interrupted; the same command continues where this one stopped", 130) from None
        except typer.Exit:
            raise
        except Exception as error:
            if options["debug"]:
                raise
            if isinstance(error, HcdcError):
                raise _stop(_as_flags(str(error)), 2 if isinstance(error, InputError) else 1) from None
            reason = f"{type(error).__name__}: {error}"
            raise _stop(f"this should not have happened ({reason}); --debug shows where", 1) from None

    return app.command()(run)


def _stop(sentence: str, code: int) -> typer.Exit:
    typer.echo(f"hcdc: {_printable(sentence)}", err=True)
    return typer.Exit(code)


def _as_flags(text: str) -> str:
    """Arguments of the library by the names they have on the command line."""
    for name in FLAGS:  # whole words: a path may hold one as a part
        text = re.sub(rf"(?<![\w/.\\-]){name}(?![\w/\\-]|\.\w)", f"--{name.replace('_', '-')}", text)
    return f"--{text}" if text.startswith(("truth:", "candidates ")) else text


def _printable(text: object) -> str:
    """Text from a file or a name, without characters that would steer the terminal."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def _configure_logging() -> None:
    """Warnings on stderr; progress sets the level of log lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("hcdc")
    log.handlers[:] = [handler]
    log.setLevel(logging.WARNING)


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    """A live line on a terminal, log lines elsewhere."""
    live = sys.stderr.isatty() and not quiet
    logging.getLogger("hcdc").setLevel(logging.WARNING if live or quiet else logging.INFO)
    try:
        yield Progress(live=live)
    finally:
        if live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def _say(lines: Sequence[tuple[str, object]], quiet: bool) -> None:
    """Labelled lines, unless quiet."""
    if not quiet:
        width = max(len(label) for label, _ in lines)
        for label, text in lines:
            typer.echo(f"{label:<{width}}  {_printable(text)}")


def _quoted(value: object) -> str:
    """A word of a command that can be copied."""
    return shlex.quote(str(value))


def _last_line(done: str, following: str, json_file: Path | None = None) -> None:
    """What was written and what to do next; where the JSON took standard output, on stderr."""
    typer.echo(_printable(f"{done}; next: {following}"), err=_is_stdout(json_file))


def _is_stdout(json_file: Path | None) -> bool:
    return json_file is not None and str(json_file) == "-"


def _show_table(rows: Sequence[Row], quiet: bool) -> None:
    """The main columns, on the terminal."""
    if quiet:
        return
    columns = [column for column in COLUMNS if column.narrow]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        first, last = column is columns[0], column is columns[-1]
        table.add_column(column.narrow, justify="left" if first else "right", no_wrap=not last)
    for row in rows:
        name, *cells = (column.cell(row) for column in columns)
        indent = " " if row.kind == "rival" else ""
        table.add_row(indent + _printable(name), *cells, style="bold" if row.kind == "copy" else None)
    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(table)


def _show_findings(evaluations: Sequence[dict[str, Any]], quiet: bool) -> None:
    if not quiet:
        for name, texts in findings(evaluations):
            for text in texts:
                typer.echo(_printable(f"- {name}: {text}" if name else f"- {text}"))


# --- arguments ----------------------------------------------------------------------------------------------


def _device(name: str) -> str:
    kind, _, number = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (number and not (kind == "cuda" and number.isdigit())):
        raise unknown_name("--device", name, ("auto", "cpu", "cuda"))
    if kind == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no CUDA device here; use --device cpu or --device auto")
    if number and int(number) >= torch.cuda.device_count():
        raise InputError(
            f"--device {name}: there are {torch.cuda.device_count()} CUDA devices, counted from 0"
        )
    return name


def _settings(pairs: Sequence[str], flag: str = "--set", example: str = "--set steps=100") -> dict[str, Any]:
    """``key=value`` options; values are JSON where they can be, else text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise InputError(f"{flag} {pair}: a setting is written key=value, e.g. {example}")
        try:
            found[key.replace("-", "_")] = json.loads(text)
        except ValueError:
            found[key.replace("-", "_")] = text
    return found


def _writable(flag: str, path: Path | None) -> None:
    """Refuse a file that could not be written in the end, before the work."""
    if path is None or _is_stdout(path):
        return
    folder = path.resolve().parent
    if path.is_dir():
        raise InputError(f"{flag} {path}: that is a folder; name a file")
    if not folder.is_dir():
        raise InputError(f"{flag} {path}: the folder '{folder}' does not exist; make it first")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise InputError(f"{flag} {path}: it cannot be written there; choose another place")


def _apart(*named: tuple[str, Path | None]) -> None:
    """Refuse one file under two names of the command: what is written would take the other's place."""
    seen: dict[Path, str] = {}
    for name, path in named:
        if path is None or _is_stdout(path):
            continue
        if (other := seen.setdefault(path.resolve(), name)) != name:
            raise InputError(f"{name} {path}: that is {other} as well; name another file")


def _write_json(path: Path, value: Any) -> None:
    text = json.dumps(jsonable(value), indent=1, sort_keys=True, allow_nan=False) + "\n"
    if _is_stdout(path):
        typer.echo(text, nl=False)
        return
    try:
        write_atomic(path, text)
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror or error}") from error


def _kind(data: GraphData | TableData | ImageData) -> str:
    return {"graph": "a graph", "table": "a table", "image": "images"}[data.kind]


def _task(
    data: GraphData | TableData | ImageData, space: str | None, setting: str | None, model: str | None
) -> tuple[Any, Space]:
    """The task for the data, and the search space by name; a table brings its own."""
    for flag, value, kinds in (
        ("--space", space, ("graph", "image")),
        ("--setting", setting, ("graph",)),
        ("--model", model, ("image",)),
    ):
        if value is not None and data.kind not in kinds:
            own = ", which has a space of its own" if flag == "--space" else ""
            raise InputError(f"{flag} {value}: '{data.name}' is {_kind(data)}{own}; leave it out")
    if isinstance(data, TableData):
        table = TableTask(data, "ridge" if data.num_classes is None else "logistic")
        return table, table.space()
    searched = _space(space, data)
    if isinstance(data, ImageData):
        return ImageTask(data, model or "space"), searched
    return GraphTask(data, setting or "transductive"), searched


def _space(text: str | None, data: GraphData | ImageData) -> Space:
    """The space ``NAME`` or ``NAME,KEY=VALUE,...``, which must be one for this kind of data."""
    allowed = SPACES[data.kind]
    name, *pairs = (text or allowed[0]).split(",")
    known = [known for names in SPACES.values() for known in names]
    if name not in known:
        raise unknown_name("--space", name, known)
    if name not in allowed:
        raise InputError(
            f"--space {name}: '{data.name}' is {_kind(data)}, for which there is {' and '.join(allowed)}"
        )
    usual = {key: value for key, value in from_spec({"name": name}).spec().items() if key != "name"}
    settings = _settings(pairs, "--space", f"--space {name},{next(iter(usual))}=2")
    for key, value in settings.items():
        if key not in usual:
            raise unknown_name(f"--space {name}: setting", key, usual)
        wanted = type(usual[key])
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            raise InputError(
                f"--space {name}: {key} must be {wanted.__name__}, as in {key}={usual[key]}, got {value!r}"
            )
    return from_spec({"name": name, **settings})


def _check_method(flag: str, method: str | None, data: GraphData | TableData | ImageData) -> None:
    """Refuse a method for another kind of data before any work."""
    kinds = TAKES.get(method or "", (data.kind,))
    if data.kind not in kinds:
        taken = " and ".join(f"{kind}s" for kind in kinds)
        raise InputError(
            f"{flag} {method}: it condenses {taken}, and '{data.name}' is {_kind(data)}; try random"
        )


def _image_flags(data: GraphData | TableData | ImageData, **given: object) -> None:
    """Refuse flags that are for images where the data is not."""
    for name, value in given.items():
        if value is not None and data.kind != "image":
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{flag} {value}: it is for images, and '{data.name}' is {_kind(data)}")


def _size(
    flags: tuple[str, str], size: int | None, per_class: int | None, task: Any, part: str
) -> int | None:
    """A total from either spelling: the number itself, or images a class times classes."""
    if size is not None and per_class is not None:
        raise InputError(
            f"{flags[0]} {size} and {flags[1]} {per_class} are two spellings of one size; give one of them"
        )
    if per_class is None:
        return size
    if per_class < 1:
        raise InputError(f"{flags[1]} {per_class}: at least 1 is needed")
    counts = getattr(task, part).y.bincount(minlength=task.num_classes)
    least = int(counts.argmin())
    if per_class > (most := int(counts[least])):
        lacks = f"has only {most} {part} images; choose at most that"
        if most == 0:
            lacks = f"has no {part} images; add some, or take the real ones there are with --val-method real"
        raise InputError(f"{flags[1]} {per_class}: class {least} ('{task.data.class_names[least]}') {lacks}")
    return per_class * int(task.num_classes)


@dataclasses.dataclass(frozen=True)
class _About:
    """What decides whether a table of results is about some data."""

    name: str
    kind: str
    form: str
    classes: int | None


def _about(data: GraphData | TableData | ImageData) -> _About:
    form = _form(data.train.x) if isinstance(data, ImageData) else ""
    return _About(data.name, data.kind, form, data.num_classes)


def _truth(path: Path | None, dataset: str | None, about: _About) -> TableTruth | None:
    """The table of full-data results, or a refusal of one that is not about the data."""
    if path is None:
        if dataset is not None:
            raise InputError(f"--truth-dataset {dataset}: there is no --truth whose data set it could name")
        return None
    name = about.name
    if about.kind != "image":
        raise InputError(
            f"--truth {path}: the table has results on images, and '{name}' is {about.kind} data"
        )
    if dataset is not None and dataset not in BENCHMARKS:
        raise unknown_name("--truth-dataset", dataset, BENCHMARKS)
    if dataset is not None and name in BENCHMARKS and name != dataset:
        raise InputError(f"--truth-dataset {dataset}: the data is '{name}'; leave it out")
    told = dataset or name
    if told not in BENCHMARKS:
        raise InputError(
            f"--truth {path}: the table has results on cifar10 and cifar100, and the data is '{name}'; if it "
            "is one of them under another name, say which with --truth-dataset"
        )
    if (about.form, about.classes) != ("3 x 32 x 32", BENCHMARKS[told]):
        raise InputError(
            f"--truth {path}: {told} has {BENCHMARKS[told]} classes of 3 x 32 x 32 pixels, and '{name}' has "
            f"{about.classes} of {about.form}, so the table's results are not about it; leave it out"
        )
    return TableTruth(NASBench201Table(path), told)


def _form(x: torch.Tensor) -> str:
    return " x ".join(map(str, x.shape[1:]))


def _record_path(file: Path) -> Path:
    return file.with_name(f"{file.name}.json")


def _record(file: Path) -> dict[str, Any]:
    """What `condense` wrote beside the file, or nothing where it is missing or belongs to another file."""
    try:
        found = json.loads(_record_path(file).read_text(encoding="utf-8"))
        own = isinstance(found, dict) and found.get("sha256") == hashlib.sha256(file.read_bytes()).hexdigest()
    except (OSError, ValueError, RecursionError):
        return {}
    return found if own else {}


def _made_by(small: CondensedDataset, made: Plan) -> bool:
    """Whether a file was made by the command that ``made`` plans."""
    planned = {**jsonable(made.meta), "train_size": made.train_size}
    if made.meta["val_method"] != "real":
        planned["val_size"] = made.val_size
    if tried := small.meta.get("recipes_tried"):  # the first is the planned one, the file says the best
        small = dataclasses.replace(small, meta={**small.meta, "calibrated_recipe": tried[0]["recipe"]})
    return all(small.meta.get(key) == value for key, value in json.loads(json.dumps(planned)).items())


def _already_there(out: Path, made: Plan, force: bool) -> bool:
    """Whether the same command wrote ``out`` before; another file there is refused unless forced."""
    if force or not out.exists():
        return False
    try:
        if _made_by(CondensedDataset.load(out), made):
            return True
    except InputError:
        pass
    raise InputError(
        f"--out {out}: the file exists and another command made it; choose another name, or add --force"
    )


# --- commands -----------------------------------------------------------------------------------------------


@_command
def condense(
    dataset: Annotated[
        str,
        typer.Option(
            "--dataset",
            help="A name (cora, cifar10, embedded, ...), an .npz of a graph or of images, a folder of "
            "images, a .csv table.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The condensed file to write, NAME.hcdc.")],
    train_size: Annotated[
        MaybeInt, typer.Option("--train-size", help="Training examples of the copy, in all.")
    ] = None,
    per_class: Annotated[
        MaybeInt,
        typer.Option("--images-per-class", help="The other spelling of --train-size: images of each class."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="random, kcenter, herding, hcdc; graphs: reach, gcond, gcondx; images: dm, dc, dsa, tm, kip",
        ),
    ] = "hcdc",
    val_size: Annotated[
        MaybeInt,
        typer.Option(
            "--val-size",
            help="Validation examples of the copy; by default the original's ratio (images: 0.4 times the "
            "training images).",
        ),
    ] = None,
    val_per_class: Annotated[
        MaybeInt, typer.Option("--val-images-per-class", help="The other spelling of --val-size.")
    ] = None,
    train_method: Annotated[
        MaybeText,
        typer.Option(
            "--train-method", help="What makes S_train for hcdc; 'reach' on graphs, 'random' elsewhere."
        ),
    ] = None,
    val_method: Annotated[
        MaybeText,
        typer.Option(
            "--val-method",
            help="What makes S_val: aligned, both, probes, weighted (not on graphs), same, random or real.",
        ),
    ] = None,
    probes: Annotated[
        MaybeInt,
        typer.Option(
            "--probes", help="Candidates with a full-data result to learn from; short for --set probes=N."
        ),
    ] = None,
    truth: TruthOption = None,
    truth_dataset: TruthDataOption = None,
    truth_epochs: Annotated[
        MaybeInt, typer.Option("--truth-epochs", help="Epochs of a full-data training, for images; 20.")
    ] = None,
    preset: Annotated[
        MaybeText, typer.Option("--preset", help="Named settings of the method, e.g. demo.")
    ] = None,
    settings: Annotated[
        MaybeTexts,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="One setting of the method (of HCDC's S_train: train.KEY=VALUE); may be repeated.",
        ),
    ] = None,
    recipe: Annotated[
        MaybeTexts,
        typer.Option(
            "--recipe",
            metavar="KEY=VALUE",
            help="One setting of the training on the copy, e.g. lr=0.1, steps, seeds; may be repeated.",
        ),
    ] = None,
    full_recipe: Annotated[
        MaybeTexts,
        typer.Option(
            "--full-recipe",
            metavar="KEY=VALUE",
            help="One setting of the training on the full data, e.g. lr=0.05, augment=none; may be repeated.",
        ),
    ] = None,
    space: Annotated[
        MaybeText,
        typer.Option(
            "--space",
            metavar="NAME[,KEY=VALUE]",
            help="Graphs: polynomial-filter (default) or gnn-zoo; images: nasbench201, also smaller: "
            "nasbench201,channels=8.",
        ),
    ] = None,
    model: Annotated[
        MaybeText,
        typer.Option("--model", help="Networks of images: those of the space (space, default) or convnet."),
    ] = None,
    setting: Annotated[
        MaybeText, typer.Option("--setting", help="transductive (default) or inductive, for graphs.")
    ] = None,
    target: Annotated[MaybeText, typer.Option("--target", help="The column to predict, for tables.")] = None,
    split_seed: Annotated[
        int, typer.Option("--split-seed", min=0, help="Seed of the split where the data brings none.")
    ] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out.")] = False,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    json_file: JsonOption = None,
    debug: DebugOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a condensed file of a data set."""
    _writable("--out", out)
    _writable("--json", json_file)
    read = Path(dataset) if Path(dataset).is_file() else None
    _apart(("--dataset", read), ("--truth", truth), ("--out", out), ("--json", json_file))
    device, options = _device(device), _settings(settings or [])
    if probes is not None:
        if "probes" in options:
            raise InputError(f"--probes {probes} and --set probes={options['probes']}: give one of them")
        options["probes"] = probes
    data = hcdc.data(dataset, target=target, seed=split_seed)
    _image_flags(
        data,
        images_per_class=per_class,
        val_images_per_class=val_per_class,
        truth=truth,
        truth_dataset=truth_dataset,
        truth_epochs=truth_epochs,
    )
    task, searched = _task(data, space, setting, model)
    _check_method("--method", method, data)
    _check_method("--train-method", train_method, data)
    train_size = _size(("--train-size", "--images-per-class"), train_size, per_class, task, "train")
    val_size = _size(("--val-size", "--val-images-per-class"), val_size, val_per_class, task, "val")
    if train_size is None:
        raise InputError("--train-size is missing: how many training examples is the copy to have, in all?")
    arguments: dict[str, Any] = {
        "method": method,
        "train_size": train_size,
        "val_size": val_size,
        "seed": seed,
        "train_method": train_method,
        "val_method": val_method,
        "preset": preset,
        "options": options,
        "truth": _truth(truth, truth_dataset, _about(data)),
        "recipe": _settings(recipe or [], "--recipe", "--recipe lr=0.1"),
        "full_recipe": _settings(full_recipe or [], "--full-recipe", "--full-recipe lr=0.05"),
    }
    if truth_epochs is not None:
        if truth_epochs < 1:
            raise InputError(f"--truth-epochs {truth_epochs}: at least 1 is needed")
        arguments["truth_epochs"] = truth_epochs
    if truth is not None and method != "hcdc":
        raise InputError(
            f"--truth {truth}: method '{method}' learns nothing from full-data results; 'hcdc evaluate' "
            "takes them"
        )
    made = plan(task, searched, **arguments)
    if made.truth is not None and made.probing is not None:
        for config in probe_configs(searched, made.probing.probes, seed):
            made.truth.score(config, "val")  # a table without it is refused before the work
    following = f"hcdc evaluate {_quoted(out)}"
    for flag, value in (("--truth", truth), ("--truth-dataset", truth_dataset)):
        following += f" {flag} {_quoted(value)}" if value is not None else ""
    if _already_there(out, made, force):
        there = f"{out} is there already, made by the same command, so nothing was done (--force repeats it)"
        if json_file is not None:
            if not (known := _record(out)):
                raise InputError(f"--json: there is no record {_record_path(out)}; --force makes it again")
            _write_json(json_file, known)
        _last_line(there, following, json_file)
        return
    checkpoint = out.with_name(f".{out.name}.ckpt")
    if not quiet:
        lines = _plan_lines(made, task, device)
        _say(lines, quiet)
        if Checkpoint(checkpoint, made.key()).begun():
            cost = "what is left of an earlier run"
        else:  # an estimate, which takes its time
            cost = _cost(made, task, searched, device, seed)
        _say([("cost".ljust(max(len(label) for label, _ in lines)), cost)], quiet)
    record: dict[str, Any] = {}
    size = 0

    def keep(small: CondensedDataset) -> None:
        nonlocal size
        content = small.to_bytes()
        size = len(content)
        record.update(
            {
                "file": out.name,
                "sha256": hashlib.sha256(content).hexdigest(),
                "dataset": made.meta["data"]["name"],
                **{key: small.meta[key] for key in ("method", "preset", "train_size", "val_size", "seed")},
                **small.record,
            }
        )
        _write_json(_record_path(out), record)  # first: a file that is there has its record
        small.save(out)

    with _progress(quiet) as progress:
        hcdc.condense(
            task, searched, **arguments, device=device, checkpoint=checkpoint, progress=progress, done=keep
        )
    if json_file is not None:
        _write_json(json_file, record)
    spent = f"{record['condense_seconds']:.1f} s on {device_name(device)}"
    _last_line(
        f"wrote {out} ({size / 1024:,.0f} KiB, {spent}) and {_record_path(out).name}",
        following,
        json_file,
    )


def _plan_lines(made: Plan, task: Any, device: str) -> list[tuple[str, object]]:
    """What is about to be done."""
    meta, data = made.meta, task.data
    parts = " / ".join(f"{len(getattr(data, part)):,}" for part in ("train", "val", "test"))
    shape = f", {_form(data.train.x)} pixels" if isinstance(data, ImageData) else ""
    real = meta["val_method"] == "real"
    sizes = f"S_train {_sized(made.train_size, task)}, S_val " + (
        "the real validation set"
        if real
        else f"{made.val_size}, of any class"
        if meta["val_method"] == "weighted"
        else _sized(made.val_size, task)
    )
    preset = f", preset {meta['preset']}" if meta["preset"] else ""
    calibrates = made.probing is not None and made.probing.calibrate
    chosen = ", or another that the probes choose" if calibrates else ""
    relaxed = []  # with a table it is all that is trained on the full data
    if made.truth is not None and made.config is not None:
        relaxed = [("relaxed network", f"trained on the full data: {_words(made.relaxed(task).as_dict())}")]
    return [
        ("data", f"{data.name}, {parts} for training / validation / test{shape}, split: {data.split}"),
        (
            "method",
            f"{meta['method']}{preset}: S_train by {meta['train_method']}, S_val by {meta['val_method']}",
        ),
        ("sizes", sizes),
        ("space", _words(meta["space"])),
        _full_line(meta, made.truth),
        *relaxed,
        ("calibrated recipe", _words(meta["calibrated_recipe"]) + chosen),
        ("device", device_name(device)),
        *_doubts(made, task),
    ]


def _full_line(meta: dict[str, Any], table: Truth | None) -> tuple[str, object]:
    """How candidates are trained on the full data, or the table that has their results."""
    if table is not None:
        return "full data", f"results from the {table.words()}"
    return "full recipe", _words(meta["full_recipe"])


def _doubts(made: Plan, task: Any) -> list[tuple[str, object]]:
    """What our own results say against the plan."""
    if made.meta["val_method"] != "aligned" or not isinstance(task, ImageTask):
        return []
    return [
        (
            "note",
            "hypergradients alone ranked cells of CIFAR-10 worse than random validation images did; "
            "--val-method real ranked better, and so did probes (--val-method weighted)",
        )
    ]


def _sized(size: int, task: Any) -> str:
    """A size, for images with what it is of each class."""
    if not isinstance(task, ImageTask) or size % task.num_classes:
        return str(size)
    return f"{size} ({size // task.num_classes} a class)"


def _cost(made: Plan, task: Any, space: Space, device: str, seed: int) -> str:
    """What is known beforehand of the cost of making the copy: what is trained, for images with seconds."""
    told = []
    if made.config is not None and isinstance(task, ImageTask):
        told.append(alignment_words(task.to(device), space, made, seed))
    elif made.config is not None and made.config.response == "own":
        told.append(f"{point_count(made.config, space, seed)} full-data trainings")
    if made.probing is not None:
        probes = made.probing.probes
        beside = len(companion_configs(space, probes, made.probing.companions, seed))
        on_copy = f"{probes + beside} candidates trained {made.calibrated.seeds} times each on the copy"
        trainings = probes + beside
        if made.probing.calibrate:
            recipes = len(task.recipes_around(made.calibrated))
            on_copy += f", {probes} of them by {recipes} recipes before"
            trainings += recipes * probes
        if isinstance(task, ImageTask):
            spent = trainings * _predicted(task, space, made.calibrated, device, made.train_size)
            on_copy += f": about {duration(spent)} (estimate from a few steps)"
        told.append(on_copy)
        if made.truth is not None:
            spent = sum(made.truth.seconds(config) for config in probe_configs(space, probes, seed))
            told.append(f"{probes} full-data results from the table ({spent:,.0f} s by its own clock)")
        else:
            told.append(_trainings(probes, task, space, made.full, device))
    if reduced := _reduction(made, task, device):
        told.append(reduced)
    return "; ".join(told) or "no full-data training"


def _reduction(made: Plan, task: Any, device: str) -> str:
    """What the method behind S_train (and S_val, where it makes both) takes."""
    sizes = {"train": made.train_size}
    if made.meta["val_method"] == "same":
        sizes["val"] = made.val_size
    trained, loops = made.reducer.trains(task), made.reducer.loops()
    told = " and ".join([*([f"{trained} on the full data"] if trained else []), *([loops] if loops else [])])
    if not told:
        return ""
    told = f"{' and '.join(f'S_{part}' for part in sizes)} by {made.reducer.name}: {told}"
    moved = task.to(device)
    spent = [made.reducer.seconds(moved, part, size) for part, size in sizes.items()]
    told += " for each" if len(sizes) > 1 and spent[-1] != 0 else ""
    known = [each for each in spent if each is not None]
    if len(known) < len(spent):
        return f"{told}, whose time is not predicted"
    return f"{told}, about {duration(sum(known))} (estimate from a few images)"


def _trainings(count: int, task: Any, space: Space, recipe: Recipe, device: str) -> str:
    """So many trainings on the full data, for images with the seconds that they may take."""
    told = f"{count} full-data trainings, less those that the cache knows"
    if not isinstance(task, ImageTask):
        return told
    spent = count * _predicted(task, space, recipe, device)
    return f"{told}: about {duration(spent)} (estimate from a few steps)"


def _predicted(
    task: ImageTask, space: Space, recipe: Recipe, device: str, train_size: int | None = None
) -> float:
    """Seconds of one training by ``recipe``, extrapolated from a few steps of two candidates.

    On all training images, or on ``train_size`` of them. On CUDA, where many networks train side by side, it
    is too high.
    """
    task = task.to(device)
    configs = space.sample(2, numpy_stream(0, "estimate"))
    first = torch.arange(min(task.num_classes, len(task.val)))  # of whatever class
    parts = {"val": task.chosen("val", first)}
    train = task.train if train_size is None else task.sample("train", train_size, 0)

    def seconds(steps: int) -> float:
        begun = time.perf_counter()
        short = dataclasses.replace(recipe, steps=steps, seeds=1, lr=1e-6, lr_end=0.0)  # never diverges
        run_candidates(task, space, configs, train, parts, short, 0, "estimate", device)
        return (time.perf_counter() - begun) / len(configs)

    few = 50 if device.startswith("cuda") else 3
    seconds(1)  # what is paid once
    least = seconds(1)
    step = max(0.0, seconds(1 + few) - least) / few
    return recipe.seeds * (least + step * (recipe.steps - 1))


def _words(values: dict[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in values.items())


@_command
def evaluate(
    file: Annotated[Path, typer.Argument(help="A condensed file.")],
    candidates: Annotated[int, typer.Option("--candidates", help="Fresh configurations to judge with.")] = 80,
    truth: TruthOption = None,
    truth_dataset: TruthDataOption = None,
    rivals: Annotated[bool, typer.Option("--rivals/--no-rivals", help="Rank with the rivals too.")] = True,
    cache: Annotated[
        MaybePath,
        typer.Option("--cache", help="Folder for full-data results; $HCDC_CACHE or ~/.cache/hcdc/truth."),
    ] = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    json_file: JsonOption = None,
    debug: DebugOption = False,
    quiet: QuietOption = False,
) -> None:
    """Rank fresh configurations on the copy and on the full data, and compare."""
    result = json_file or file.with_name(f"{file.name.removesuffix('.hcdc')}.evaluation.json")
    _writable("--json", result)
    _apart(("FILE", file), ("its record", _record_path(file)), ("--truth", truth), ("--json", result))
    device = _device(device)
    small = dataclasses.replace(CondensedDataset.load(file), record=_record(file))
    about = _About(str(small.meta["data"].get("name")), small.kind, "", small.num_classes)
    if isinstance(small.train, Images):
        about = dataclasses.replace(about, form=_form(small.train.x))
    table = _truth(truth, truth_dataset, about)
    task = reopen_task(small)
    fresh, _ = checked_judges(small, task, candidates, seed)
    if not quiet:
        _say(_judge_lines(small, task, len(fresh), device, table), quiet)
    with _progress(quiet) as progress:
        found = hcdc.evaluate(
            small,
            candidates=candidates,
            seed=seed,
            task=task,
            device=device,
            cache=cache,
            rivals=rivals,
            progress=progress,
            table=table,
        ).as_dict()
    _write_json(result, found)
    _show_table(summary_table([found]), quiet)
    _show_findings([found], quiet)
    _last_line(f"wrote {result}", f"hcdc report {_quoted(result)} --out report.html", result)


def _judge_lines(
    small: CondensedDataset, task: Any, candidates: int, device: str, table: Truth | None
) -> list[tuple[str, object]]:
    """What is about to be judged, how, and what it costs."""
    meta = small.meta
    if table is not None:
        cost = "nothing is trained on the full data"
    else:
        full = Recipe.from_dict(meta["full_recipe"])
        cost = _trainings(candidates, task, from_spec(meta["space"]), full, device)
        if meta.get("truth"):
            cost += "; the copy was made with a table of results, and --truth FILE judges by it"
    return [
        ("data", f"{meta['data'].get('name')}, split: {meta['data'].get('split')}"),
        ("candidates", f"{candidates} of {_words(meta['space'])}"),
        _full_line(meta, table),
        ("calibrated recipe", _words(meta["calibrated_recipe"])),
        ("device", device_name(device)),
        ("cost", cost),
    ]


@_command
def inspect(
    file: Annotated[Path, typer.Argument(help="A condensed file.")],
    json_file: JsonOption = None,
    seed: UnusedSeed = 0,
    device: UnusedDevice = "auto",
    debug: DebugOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show what a condensed file holds and what is known of how it ranks; imports nothing that it names."""
    _writable("--json", json_file)
    _apart(("FILE", file), ("its record", _record_path(file)), ("--json", json_file))
    small = CondensedDataset.load(file)
    record = _record(file)
    evaluations = evaluations_of(small.meta, sorted(file.resolve().parent.glob("*.json")))
    lines: list[tuple[str, object]] = [
        *small.summary(),
        *_image_lines(small),
        *_evidence(record, evaluations),
    ]
    if json_file is not None:
        summary = {
            "file": str(file),
            "meta": small.meta,
            "record": record,
            "lines": [list(line) for line in lines],
        }
        _write_json(json_file, summary)
    _say(lines, quiet)
    done = "nothing written" if json_file is None else f"wrote {json_file}"
    if evaluations:
        _last_line(
            done, f"hcdc report {_quoted(file.parent / evaluations[0][0].name)} --out report.html", json_file
        )
    else:
        _last_line(done, f"hcdc evaluate {_quoted(file)}", json_file)


def _image_lines(small: CondensedDataset) -> list[tuple[str, object]]:
    """What the images of a file are like, and which full-data results they were learned from."""
    lines: list[tuple[str, object]] = []
    for name, part in (("S_train", small.train), ("S_val", small.val)):
        if not isinstance(part, Images):
            continue
        counts = part.y.bincount(minlength=small.num_classes or 1)
        low, high = int(counts.min()), int(counts.max())
        told = f"{low if low == high else f'{low} to {high}'} a class, {_form(part.x)} pixels of "
        told += f"{float(part.x.min()):.2f} .. {float(part.x.max()):.2f} (normalised)"
        if part.weight is not None:
            weight = part.weight / part.weight.mean()
            told += (
                f"; weights up to {float(weight.max()):.1f} times the mean, {int((weight == 0).sum())} are 0"
            )
        lines.append((name, told))
    probes = small.meta.get("probes") or {}
    if isinstance(probes, dict) and probes.get("configs"):
        source = small.meta.get("truth") or "trained on the full data"
        source = _words(source) if isinstance(source, dict) else source
        lines.append(("probes", f"{len(probes['configs'])} candidates, results: {source}"))
    return lines


def _evidence(
    record: dict[str, Any], evaluations: Sequence[tuple[Path, dict[str, Any]]]
) -> list[tuple[str, object]]:
    """What lies beside the file: the record of its making and evaluations of it."""
    lines: list[tuple[str, object]] = []
    if "condense_seconds" in record:
        where = record.get("environment", {}).get("device", "an unknown device")
        lines.append(("made in", f"{record['condense_seconds']:.1f} s on {where}"))
    for path, evaluation in evaluations:
        value = evaluation["spearman"]
        ranks = (
            "not defined"
            if value is None
            else f"Spearman {value:.2f} on {len(evaluation['truth'])} candidates"
        )
        lines.append(("evaluation", f"{path.name}: {ranks}"))
        if choice := validation_choice(evaluation):
            lines.append(("validation choice", choice))
        if value is not None:  # a copy without a ranking saves nothing
            lines.append(("whether it pays", payment(evaluation)))
    if not evaluations:
        lines.append(("evaluation", "none lies beside the file, so how it ranks is not known"))
    return lines


@_command
def report(
    files: Annotated[list[Path], typer.Argument(help="Evaluations that 'hcdc evaluate --json' wrote.")],
    out: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("report.html"),
    title: Annotated[
        str, typer.Option("--title", help="Heading of the page.")
    ] = "Rank agreement of condensed copies",
    json_file: JsonOption = None,
    seed: UnusedSeed = 0,
    device: UnusedDevice = "auto",
    debug: DebugOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write one HTML page with the table, the figures and what they say."""
    _writable("--out", out)
    _writable("--json", json_file)
    for file in files:
        _apart(("FILE", file), ("--out", out), ("--json", json_file))
    evaluations = [read_evaluation(file) for file in files]
    copies = _copies(files, evaluations)
    write_report(evaluations, out, title, copies, [_before(small) for small in copies])
    rows = summary_table(evaluations)
    if json_file is not None:
        _write_json(json_file, _summary(evaluations, rows))
    _show_table(rows, quiet)
    _last_line(f"wrote {out}", f"open {out} in a browser", json_file)


def _copies(files: Sequence[Path], evaluations: Sequence[dict[str, Any]]) -> list[CondensedDataset]:
    """Copies of images beside their evaluations: ``NAME.hcdc`` by ``NAME[.evaluation].json``."""
    found: dict[Path, CondensedDataset] = {}
    for file, evaluation in zip(files, evaluations):
        path = file.with_name(f"{file.name.removesuffix('.json').removesuffix('.evaluation')}.hcdc")
        if not path.is_file():
            continue
        try:
            small = CondensedDataset.load(path)
        except InputError:
            continue
        if small.kind == "image" and belongs(evaluation, small.meta):
            found[path.resolve()] = small
    return list(found.values())


def _before(small: CondensedDataset) -> Images | None:
    """The real images that S_val was learned from, where it was and the original data can be read again."""
    if small.meta["val_method"] not in STARTED_FROM_REAL:
        return None
    try:
        task: Any = reopen_task(small, download=False)
        images: Images = task.sample("val", small.meta["val_size"], small.meta["seed"])
    except InputError:
        return None
    return images


def _summary(evaluations: Sequence[dict[str, Any]], rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "table": [dataclasses.asdict(row) for row in rows],
        "findings": [{"copy": name, "texts": texts} for name, texts in findings(evaluations)],
    }


@_command
def demo(
    out: Annotated[
        MaybePath,
        typer.Option("--out", help="Folder for everything the demo writes; demo-out, or demo-out/images."),
    ] = None,
    images: Annotated[
        bool, typer.Option("--images", help="Digits and networks of cells instead of the graph.")
    ] = False,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    json_file: JsonOption = None,
    debug: DebugOption = False,
    quiet: QuietOption = False,
) -> None:
    """Condense embedded data (a graph, or digits) by several methods, search on each copy, compare."""
    _writable("--json", json_file)
    device = _device(device)
    with _progress(quiet) as progress:
        if images:
            result = run_image_demo(out or Path("demo-out", "images"), device, seed, progress)
        else:
            result = run_demo(out or Path("demo-out"), device, seed, progress)
    rows = summary_table(result.evaluations)
    if json_file is not None:
        _write_json(json_file, _summary(result.evaluations, rows))
    _show_table(rows, quiet)
    _show_findings(result.evaluations, quiet)
    for note in () if quiet else result.notes:
        typer.echo(_printable(f"- {note}"))
    _say([("figures", ", ".join(str(path) for path in result.figures))], quiet)
    _last_line(f"wrote {result.report}", f"open {result.report} in a browser", json_file)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hcdc {version()}")
        raise typer.Exit


@app.callback()
def _top(
    show: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop."),
    ] = False,
) -> None:
    """Make a data set small enough to search on, and find out how far its ranking can be trusted."""
