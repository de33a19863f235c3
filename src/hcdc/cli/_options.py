"""Options of the commands: type and help. A flag is named like its parameter unless it says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

from typer import Argument, Option

# early releases of typer 0.12 do not accept ``int | None``
MaybeInt = Optional[int]  # noqa: UP045
MaybeFloat = Optional[float]  # noqa: UP045
MaybePath = Optional[Path]  # noqa: UP045
MaybePaths = Optional[list[Path]]  # noqa: UP045
MaybeText = Optional[str]  # noqa: UP045
MaybeTexts = Optional[list[str]]  # noqa: UP045
PAIR = "KEY=VALUE"

# --- every command ------------------------------------------------------------------------------------------

Seed = Annotated[int, Option(min=0, help="Seed for every random draw.")]
Device = Annotated[str, Option(help="auto, cpu or cuda; auto uses a GPU if there is one.")]
UnusedSeed = Annotated[int, Option(min=0, help="Ignored: nothing here is random.")]
UnusedDevice = Annotated[str, Option(help="Ignored: nothing here is computed.")]
Json = Annotated[MaybePath, Option("--json", metavar="FILE", help="Write the result as JSON; '-' is stdout.")]
Debug = Annotated[bool, Option("--debug", help="Show tracebacks.")]
Quiet = Annotated[bool, Option("--quiet", help="Print only the last line.")]

# --- several commands ---------------------------------------------------------------------------------------

_IMPORT = "Import a module or a .py file first: your own data, tasks, spaces or methods. Repeatable."
Imports = Annotated[MaybeTexts, Option("--import", metavar="MODULE", help=_IMPORT)]
CondensedFile = Annotated[Path, Argument(help="A condensed file, NAME.hcdc.")]
_TRUTH = "Images: read full-data results from a NAS-Bench-201 table (.csv, .csv.gz) instead of training."
Truth = Annotated[MaybePath, Option(metavar="FILE", help=_TRUTH)]
_TRUTH_DATASET = "Images: cifar10 or cifar100, if your data has a different name than in --truth."
TruthDataset = Annotated[MaybeText, Option(help=_TRUTH_DATASET)]

# --- condense -----------------------------------------------------------------------------------------------

_DATASET = (
    "A name (cora, cifar10, embedded, ...), an .npz file with a graph or images, a folder of images, or a "
    "table (.csv, .parquet)."
)
Dataset = Annotated[str, Option(help=_DATASET)]
CondensedOut = Annotated[Path, Option(help="The condensed file to write, NAME.hcdc.")]
TrainSize = Annotated[MaybeInt, Option(help="Training examples in the copy, in total.")]
PerClass = Annotated[MaybeInt, Option("--images-per-class", help="Images: --train-size per class.")]
_METHOD = (
    "How to condense. All data: hcdc, random, kcenter, herding. Graphs: reach, neighbours, gcond, gcondx. "
    "Images: dm, dc, dsa, tm, kip."
)
Method = Annotated[str, Option(help=_METHOD)]
_VAL_SIZE = (
    "Validation examples in the copy, in total. Default: the ratio in the original data; for images, 0.4 "
    "times the training images."
)
ValSize = Annotated[MaybeInt, Option(help=_VAL_SIZE)]
ValPerClass = Annotated[MaybeInt, Option("--val-images-per-class", help="Images: --val-size per class.")]
_TRAIN_METHOD = "How hcdc makes S_train: any other --method. Default: reach for graphs, random otherwise."
TrainMethod = Annotated[MaybeText, Option(help=_TRAIN_METHOD)]
_VAL_METHOD = "How to make S_val: aligned, both, landscape, probes, weighted, same, random or real."
ValMethod = Annotated[MaybeText, Option(help=_VAL_METHOD)]
_PROBES = "How many candidates with full-data results hcdc learns from; short for --set probes=N."
Probes = Annotated[MaybeInt, Option(help=_PROBES)]
TruthEpochs = Annotated[MaybeInt, Option(help="Images: epochs per full-data training; 20 by default.")]
Preset = Annotated[MaybeText, Option(help="Named settings of the method, e.g. demo.")]
_SET = "Change one setting of the method (train.KEY=VALUE for the method behind hcdc's S_train). Repeatable."
Set = Annotated[MaybeTexts, Option("--set", metavar=PAIR, help=_SET)]
_RECIPE = "Change how candidates are trained on the copy, e.g. lr=0.1, steps=200, seeds=4. Repeatable."
CopyRecipe = Annotated[MaybeTexts, Option(metavar=PAIR, help=_RECIPE)]
_FULL_RECIPE = "Change how candidates are trained on the full data, e.g. lr=0.05, augment=none. Repeatable."
FullRecipe = Annotated[MaybeTexts, Option(metavar=PAIR, help=_FULL_RECIPE)]
_SPACE = (
    "What to search. Graphs: polynomial-filter (default) or gnn-zoo. Images: nasbench201, or smaller "
    "networks with nasbench201,channels=8. All: training, or training,settings=lr+dropout."
)
SpaceName = Annotated[MaybeText, Option(metavar="NAME[,KEY=VALUE]", help=_SPACE)]
_MODEL = (
    "Images: space (default: the networks of the space), convnet, or FILE.py:NAME, your own function from a "
    "configuration to a torch module. Tables: linear (default) or mlp."
)
Model = Annotated[MaybeText, Option(help=_MODEL)]
Setting = Annotated[MaybeText, Option(help="Graphs: transductive (default) or inductive.")]
Target = Annotated[MaybeText, Option(help="Tables: the column to predict.")]
SplitSeed = Annotated[int, Option(min=0, help="Seed for the split, if the data has none of its own.")]
Force = Annotated[bool, Option("--force", help="Overwrite --out.")]
ForceResult = Annotated[bool, Option("--force", help="Replace another evaluation beside the file.")]

# --- search, plan, trust ------------------------------------------------------------------------------------

_SEARCHED = "Search this condensed file alone, without full trainings."
SearchedFile = Annotated[MaybePath, Argument(help=_SEARCHED)]
SearchedData = Annotated[MaybeText, Option("--dataset", help=_DATASET)]
_BUDGET = "Time to spend on everything: 90s, 30m, 1h30m."
Budget = Annotated[str, Option(help=_BUDGET)]
SearchBudget = Annotated[MaybeText, Option(help=f"{_BUDGET} Default: 30m; no limit for a file.")]
Trials = Annotated[MaybeInt, Option(help="Most configurations to try on the cheapest rung. For a file: 200.")]
_STORAGE = "Keep finished trials here; the same command continues."
Storage = Annotated[MaybeText, Option(metavar="FILE", help=_STORAGE)]
_COPY = "A condensed file to try as a stand-in. Repeatable."
Copies = Annotated[MaybePaths, Option("--copy", metavar="FILE", help=_COPY)]
_RUNGS = (
    "Stand-ins, cheapest first: subset:0.1,short:0.25 (shares), short:3 (epochs), copy:FILE; for networks of "
    "a task also free or free:jacov+naswot (training-free scores)."
)
Rungs = Annotated[MaybeText, Option(help=_RUNGS)]
_OBJECTIVE = (
    "Your own training function objective(trial, data). Name its data with --dataset, or define data() in "
    "the same file, which returns an hcdc.FullData."
)
Objective = Annotated[MaybeText, Option(metavar="FILE.py:NAME", help=_OBJECTIVE)]
_SAMPLER = "tpe: Optuna's sampler makes two thirds of the proposals."
Sampler = Annotated[MaybeText, Option(metavar="tpe", help=_SAMPLER)]
_KNOWN = "Earlier full results: a CSV file, one column per parameter and 'val', or an Optuna journal."
Known = Annotated[MaybePath, Option(metavar="FILE", help=_KNOWN)]
Backend = Annotated[MaybeText, Option(metavar="ray", help="ray: run trials on a cluster.")]
_UNITS = "ray: run the units of work on a cluster."
ReproductionBackend = Annotated[MaybeText, Option(metavar="ray", help=_UNITS)]
_ADDRESS = "Address of the Ray cluster. Default: the one that is running, else one on this machine."
Address = Annotated[MaybeText, Option(metavar="HOST:PORT", help=_ADDRESS)]
Yes = Annotated[bool, Option("--yes", help="Do not ask before more than 10 minutes of training.")]
_TRUSTED = "A condensed file, NAME.hcdc; or use --objective."
TrustedFile = Annotated[MaybePath, Argument(help=_TRUSTED)]
_RUNG = "The stand-in of --objective: subset:0.1 (a share; default), short:0.25 or short:3 (epochs)."
Rung = Annotated[MaybeText, Option(help=_RUNG)]
_AGAINST = (
    "What to compare with: full, or a short training such as short:0.25, so that you can afford more probes."
)
Against = Annotated[str, Option(metavar="RUNG", help=_AGAINST)]
_CONFIRM = "How many of the probes to train in full too, if --against is a short training."
Confirm = Annotated[int, Option(help=_CONFIRM)]
_GROUP = "Also measure a combination of hyperparameters, e.g. step='log lr - log batch'. Repeatable."
Groups = Annotated[MaybeTexts, Option("--group", metavar="NAME=SUM", help=_GROUP)]
_TRUST_PROBES = "Trainings to compare with, in full or as --against says. Fewer than 16 never say 'trust'."
_K = "What you would keep: a share such as 0.25, or a number of the probes. Default: half."
K = Annotated[MaybeFloat, Option("--k", metavar="SHARE|NUMBER", help=_K)]
TrustProbes = Annotated[int, Option("--probes", help=_TRUST_PROBES)]

# --- evaluate, report, demo ---------------------------------------------------------------------------------

_OWN_MODEL = "Your own model, if the copy was made with one."
OwnModel = Annotated[MaybeText, Option("--model", metavar="FILE.py:NAME", help=_OWN_MODEL)]
Candidates = Annotated[int, Option(help="How many new configurations to rank.")]
Rivals = Annotated[bool, Option(help="Also rank with cheaper stand-ins for the full data.")]
_CACHE = "Folder for full-data results. Default: $HCDC_CACHE, then ~/.cache/hcdc/truth."
Cache = Annotated[MaybePath, Option(help=_CACHE)]
_REPORTED = "The .json files that 'hcdc evaluate' or 'hcdc search' wrote."
Evaluations = Annotated[list[Path], Argument(help=_REPORTED)]
PageOut = Annotated[Path, Option(help="The page to write.")]
Title = Annotated[MaybeText, Option(help="Heading of the page.")]
_DEMO_OUT = "Folder to write to. Default: demo-out, or demo-out/images with --images."
DemoOut = Annotated[MaybePath, Option(help=_DEMO_OUT)]
OfImages = Annotated[bool, Option("--images", help="Use digits and small networks instead of the graph.")]

# --- reproduce ----------------------------------------------------------------------------------------------

ReproductionName = Annotated[MaybeText, Argument(help="The name of a result; --list shows all.")]
Scale = Annotated[
    str, Option(help="smoke (seconds), small (an evening on two cores) or paper (the paper's size).")
]
_SEEDS = "How many seeds, counted from 100, or FIRST:END. Default: depends on --scale."
Seeds = Annotated[MaybeText, Option(metavar="N", help=_SEEDS)]
_SHARD = "Run one part of the units, e.g. 0/2 and 1/2 on two machines; then join the files of records."
Shard = Annotated[str, Option(metavar="I/N", help=_SHARD)]
_RECORDS = "File of records to append to. Default: NAME.jsonl. Copies are kept in a folder beside it."
RecordsOut = Annotated[MaybePath, Option(metavar="FILE", help=_RECORDS)]
_CHANGE = "Change one setting of the result, e.g. methods=random,hcdc or full_recipe.steps=50. Repeatable."
ReproductionSet = Annotated[MaybeTexts, Option("--set", metavar=PAIR, help=_CHANGE)]
ReproductionSeed = Annotated[int, Option("--seed", min=0, help="Ignored; use --seeds.")]
ListNames = Annotated[bool, Option("--list", help="Show all names, what they take and which records exist.")]
