"""Options of the commands: name, type and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

# the first versions of typer 0.12 do not know the spelling ``int | None``
MaybeInt = Optional[int]  # noqa: UP045
MaybePath = Optional[Path]  # noqa: UP045
MaybeText = Optional[str]  # noqa: UP045
MaybeTexts = Optional[list[str]]  # noqa: UP045

# --- every command ------------------------------------------------------------------------------------------

Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of every random draw.")]
Device = Annotated[
    str, typer.Option("--device", help="auto, cpu or cuda; auto takes cuda if there is a GPU.")
]
UnusedSeed = Annotated[int, typer.Option("--seed", min=0, help="Ignored: nothing here is random.")]
UnusedDevice = Annotated[str, typer.Option("--device", help="Ignored: nothing here is computed.")]
Json = Annotated[
    MaybePath,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; '-' is standard output."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only the last line.")]

# --- several commands ---------------------------------------------------------------------------------------

Imports = Annotated[
    MaybeTexts,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Import a module or a .py file first: your own data, tasks, spaces or methods. Repeatable.",
    ),
]
CondensedFile = Annotated[Path, typer.Argument(help="A condensed file, NAME.hcdc.")]
Truth = Annotated[
    MaybePath,
    typer.Option(
        "--truth",
        metavar="FILE",
        help="Images: a NAS-Bench-201 table (.csv, .csv.gz) of full-data results, in place of training.",
    ),
]
TruthDataset = Annotated[
    MaybeText,
    typer.Option(
        "--truth-dataset",
        help="Images: cifar10 or cifar100, if your data goes by another name than in --truth.",
    ),
]

# --- condense -----------------------------------------------------------------------------------------------

Dataset = Annotated[
    str,
    typer.Option(
        "--dataset",
        help="A name (cora, cifar10, embedded, ...), an .npz file with a graph or images, a folder of "
        "images, or a .csv table.",
    ),
]
CondensedOut = Annotated[Path, typer.Option("--out", help="The condensed file to write, NAME.hcdc.")]
TrainSize = Annotated[MaybeInt, typer.Option("--train-size", help="Training examples in the copy, in total.")]
PerClass = Annotated[
    MaybeInt,
    typer.Option("--images-per-class", help="Images: --train-size per class."),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        help="How to condense. All data: hcdc, random. Graphs and images: kcenter, herding. Graphs: reach, "
        "gcond, gcondx. Images: dm, dc, dsa, tm, kip.",
    ),
]
ValSize = Annotated[
    MaybeInt,
    typer.Option(
        "--val-size",
        help="Validation examples in the copy, in total. Default: the ratio in the original data; for "
        "images, 0.4 times the training images.",
    ),
]
ValPerClass = Annotated[
    MaybeInt,
    typer.Option("--val-images-per-class", help="Images: --val-size per class."),
]
TrainMethod = Annotated[
    MaybeText,
    typer.Option(
        "--train-method", help="How hcdc makes S_train. Default: reach for graphs, random otherwise."
    ),
]
ValMethod = Annotated[
    MaybeText,
    typer.Option(
        "--val-method",
        help="How to make S_val: aligned, both, probes, weighted (not for graphs), same, random or real.",
    ),
]
Probes = Annotated[
    MaybeInt,
    typer.Option(
        "--probes", help="Candidates with full-data results for hcdc to learn from; short for --set probes=N."
    ),
]
TruthEpochs = Annotated[
    MaybeInt, typer.Option("--truth-epochs", help="Images: epochs per full-data training; 20 by default.")
]
Preset = Annotated[MaybeText, typer.Option("--preset", help="Named settings of the method, e.g. demo.")]
Set = Annotated[
    MaybeTexts,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one setting of the method (train.KEY=VALUE for the method behind hcdc's S_train). "
        "Repeatable.",
    ),
]
CopyRecipe = Annotated[
    MaybeTexts,
    typer.Option(
        "--recipe",
        metavar="KEY=VALUE",
        help="Change how candidates are trained on the copy, e.g. lr=0.1, steps=200, seeds=4. Repeatable.",
    ),
]
FullRecipe = Annotated[
    MaybeTexts,
    typer.Option(
        "--full-recipe",
        metavar="KEY=VALUE",
        help="Change how candidates are trained on the full data, e.g. lr=0.05, augment=none. Repeatable.",
    ),
]
SpaceName = Annotated[
    MaybeText,
    typer.Option(
        "--space",
        metavar="NAME[,KEY=VALUE]",
        help="What to search. Graphs: polynomial-filter (default) or gnn-zoo. Images: nasbench201, or "
        "smaller networks with nasbench201,channels=8.",
    ),
]
Model = Annotated[
    MaybeText,
    typer.Option(
        "--model",
        help="Images: space (default: the networks of the space), convnet, or FILE.py:NAME, your own "
        "function from a configuration to a torch module. Tables: linear (default) or mlp.",
    ),
]
Setting = Annotated[MaybeText, typer.Option("--setting", help="Graphs: transductive (default) or inductive.")]
Target = Annotated[MaybeText, typer.Option("--target", help="Tables: the column to predict.")]
SplitSeed = Annotated[
    int, typer.Option("--split-seed", min=0, help="Seed of the split, if the data comes without one.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite --out.")]

# --- evaluate, report, demo ---------------------------------------------------------------------------------

OwnModel = Annotated[
    MaybeText,
    typer.Option("--model", metavar="FILE.py:NAME", help="Your own model, if the copy was made with one."),
]
Candidates = Annotated[int, typer.Option("--candidates", help="How many new configurations to rank.")]
Rivals = Annotated[
    bool, typer.Option("--rivals/--no-rivals", help="Also rank with cheaper stand-ins for the full data.")
]
Cache = Annotated[
    MaybePath,
    typer.Option(
        "--cache", help="Folder for full-data results. Default: $HCDC_CACHE, then ~/.cache/hcdc/truth."
    ),
]
Evaluations = Annotated[list[Path], typer.Argument(help="Files that 'hcdc evaluate' wrote.")]
PageOut = Annotated[Path, typer.Option("--out", help="The page to write.")]
Title = Annotated[str, typer.Option("--title", help="Heading of the page.")]
DemoOut = Annotated[
    MaybePath,
    typer.Option("--out", help="Folder to write to. Default: demo-out, or demo-out/images with --images."),
]
OfImages = Annotated[
    bool, typer.Option("--images", help="Use digits and small networks instead of the graph.")
]
