"""Rankings of the judging cells of protocol ``nas201``, from its records.

Rankings that cost nothing beyond the probes (regressions on them, sums of two scores) are computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.condensers import rank_targets
from hcdc.core.errors import InputError
from hcdc.core.ranks import standard
from hcdc.core.ridge import ridge
from hcdc.spaces import NASBench201

Array = NDArray[np.float64]
Record = dict[str, Any]
CELLS = 100
"""Cells of one search."""

LEARNED = {
    "hcdc-probes": "**HCDC (b)**: 200 images learned from 20 probes",
    "hcdc-both": "**HCDC (c)**: hypergradients, then 20 probes",
    "hcdc-weighted": "**HCDC (d)**: 200 weighted real images, 20 probes",
}
SHARED = {
    "hcdc-aligned": "**HCDC (a)**: 200 images learned from hypergradients alone",
    "real-val": "same S_train, real validation images (2,000 at most), by loss",
    "random-val": "random copy, 200 random validation images, by loss",
}
METRICS = {"published": "score", "calibrated": "loss"}
"""What each recipe ranks by; the table of copies shows the other metric too."""
NAMES = {"kcenter": "K-Center", "herding": "Herding"} | {
    m: m.upper() for m in ("dc", "dsa", "dm", "kip", "tm")
}
WORDS = {"score": "accuracy", "loss": "loss"}
RIDGE = "ridge on operation counts and parameters, 20 probes"
SUM, ONE = "(sum of two scores)", "(one regression)"
"""How a row combines two scores: it adds their standard scores, or the ridge takes the loss as a feature."""
PARAMETERS = "number of parameters"
EARLY = "12 epochs on the full data (table)"
ALL = "all trained for 200 epochs on the full data (table)"
INITIALISATIONS = {16: "", 8: "-eight"}
KINDS = (*INITIALISATIONS.values(), "-total", "-steps")
"""The usual recipe, 8 initialisations, the paper's split, another number of steps."""
TARGETS = "-targets"
"""Runs that compare what S_val follows; `hcdc.experiments.nas201_targets` has their table."""


@dataclass(frozen=True)
class Ranking:
    """One ranking of the (first) judging cells.

    Attributes:
        scores: Higher is better ``[n]``.
        search: Seconds for a search over 100 cells on the copy, including making it.
        short, long: Trainings of 12 and of 200 epochs on the full data.
        known: Validation and test accuracy of the best probe, if there are probes.
        seed, draw: The condensation and its draw of probes, if any.
    """

    scores: Array
    search: float = 0.0
    short: int = 0
    long: int = 0
    known: tuple[float, float] | None = None
    seed: int | None = None
    draw: int | None = None


Rows = dict[str, list[Ranking]]


def kind_of(r: Record) -> str:
    """The tables a record belongs to, one of `KINDS` or `TARGETS`; records that do not say have 8
    initialisations."""
    if r.get("changes"):
        return TARGETS
    if r.get("total"):
        return "-total"
    if r.get("steps"):
        return "-steps"
    number = r.get("initialisations") or 8
    if number not in INITIALISATIONS:
        raise InputError(f"a record has {number} initialisations; tables exist for {sorted(INITIALISATIONS)}")
    return INITIALISATIONS[number]


def sized(name: str, r: Record) -> str:
    """A row's name with the number of validation images."""
    return name.replace("200", f"{r['val_size']:,}")


def scores_of(r: Record, metric: str, part: str = "val") -> Array:
    """Scores of cells on a copy, higher is better; ``part`` "real" is the real validation set."""
    values = np.asarray(r[f"{part}.{metric}"], float)
    return values if metric == "score" else -values


def first(base: Record, cells: int) -> Record:
    """The truth for the first ``cells``."""
    return {key: value[:cells] if isinstance(value, list) else value for key, value in base.items()}


def rankings(found: Sequence[Record]) -> tuple[Record, Rows]:
    """The truth's record, and the rankings of each row.

    Cells that judged no copy are left out of both.
    """
    truths = [r for r in found if r["label"] == "truth"]
    if not truths:
        raise InputError("no record holds the table's results for the judging cells (label 'truth')")
    if any(r["cells"] != truths[0]["cells"] for r in truths):
        raise InputError("the records have different judging cells; give the records of one protocol")
    sizes = {(r["train_size"], r["val_size"]) for r in found}
    if len(sizes) > 1:
        raise InputError(f"the records have copies of different sizes: {sorted(sizes)}; give those of one")
    copies = [r for r in found if r["label"] != "truth"]
    judged = max((len(_losses(r)) for r in copies), default=len(truths[0]["val"]))
    made = _Maker(first(truths[0], judged), copies)
    for r in copies:
        made.read(r)
    return made.base, made.rows


def on_same_cells(base: Record, rows: Rows, all_rows: bool) -> tuple[Record, Rows]:
    """The runs judged by all cells or, with ``all_rows``, all runs on the cells that judged every one."""
    counts = [len(one.scores) for ranked in rows.values() for one in ranked]
    cells = min(counts) if all_rows else max(counts)
    cut = {
        name: [replace(one, scores=one.scores[:cells]) for one in ranked if len(one.scores) >= cells]
        for name, ranked in rows.items()
    }
    return first(base, cells), {name: ranked for name, ranked in cut.items() if ranked}


def _losses(r: Record) -> list[float]:
    found: list[float] = r["loss"] if "loss" in r else r["val.loss"]
    return found


def _search(r: Record, more: int = 0) -> float:
    """Seconds for making a copy and for training and scoring 100 cells and ``more`` on it."""
    making = r.get("condense_seconds", (r.get("making") or {}).get("condense_seconds", 0.0))
    return float(making + r["judge_seconds"] * (CELLS + more) / len(_losses(r)))


def ranking_of(r: Record) -> Ranking:
    """The ranking in a record that has probes."""
    best = max(range(len(r["probes"])), key=lambda i: r["probe_scores"][i])
    known = (r["probe_scores"][best], r["probe_tests"][best])
    loss = -np.asarray(r["loss"], float)
    return Ranking(loss, _search(r), 0, len(r["probes"]), known, r.get("seed"), r.get("draw"))


class _Maker:
    """Collects the rankings of each row from the records of copies."""

    def __init__(self, base: Record, copies: Sequence[Record]):
        self.base = base
        self.early = np.asarray(base["val12"])
        self.features = np.asarray(base["features"], float)
        self.shared = {
            (r["label"], r["seed"], r.get("train_method", "random")): r
            for r in copies
            if r["label"] in SHARED
        }
        self.rows: Rows = {
            PARAMETERS: [Ranking(np.asarray(base["parameters"], float))],
            EARLY: [Ranking(self.early, short=CELLS)],
            ALL: [Ranking(np.asarray(base["val"]), long=CELLS)],
        }

    def add(self, name: str, r: Record, scores: Array, search: float, **others: Any) -> None:
        one = Ranking(scores, search, seed=r.get("seed"), draw=r.get("draw"), **others)
        self.rows.setdefault(name, []).append(one)

    def read(self, r: Record) -> None:
        """Add every ranking in a record."""
        made = r.get("train_method", "random")
        by = "" if made == "random" else f" (S_train by {made})"
        if r["label"] in SHARED:
            loss = -np.asarray(r["loss"])
            self.add(sized(SHARED[r["label"]], r) + by, r, loss, _search(r))
            if r["label"] == "real-val":
                both = standard(self.early[: len(loss)]) + standard(loss)
                name = f"12 epochs + real validation loss {SUM}{by}"
                self.add(name, r, both, _search(r), short=CELLS)
        elif r["label"] in LEARNED:
            self._learned(r, by)
        else:
            metric = METRICS[r["recipe_name"]]
            name = f"{NAMES.get(r['label'], r['label'])} copy, {r['recipe_name']} recipe, by {WORDS[metric]}"
            self.add(name, r, scores_of(r, metric), _search(r))

    def _learned(self, r: Record, by: str) -> None:
        """Add HCDC with probes; with HCDC (b) also regressions on the same probes, and sums."""
        own = ranking_of(r)
        paid: dict[str, Any] = {"long": own.long, "known": own.known}
        proxy, search = own.scores, own.search
        self.rows.setdefault(sized(LEARNED[r["label"]], r) + by, []).append(own)
        if r["label"] != "hcdc-probes":
            return
        early = standard(self.early[: len(proxy)])
        plain = self._regressions(r, by, paid)
        if not by:
            self.add(RIDGE, r, plain, 0.0, **paid)
            self.add(f"ridge + 12 epochs {SUM}", r, standard(plain) + early, 0.0, short=CELLS, **paid)
        both = standard(plain) + standard(proxy)
        self.add(f"**HCDC (b)** + ridge {SUM}{by}", r, both, search, **paid)
        both = standard(proxy) + early
        self.add(f"**HCDC (b)** + 12 epochs {SUM}{by}", r, both, search, short=CELLS, **paid)

    def _regressions(self, r: Record, by: str, paid: dict[str, Any]) -> Array:
        """Add the ridge combined with each loss; returns the plain ridge predictions ``[n]``."""
        at = np.asarray([NASBench201().features({"cell": cell}) for cell in r["probes"]])
        target = rank_targets(r["probe_scores"]).numpy()
        here = self.features[: len(r["loss"])]
        plain = ridge(at, target, here)
        for label, words in (("random-val", "the random copy's"), ("real-val", "real validation")):
            copy = self.shared[label, r["seed"], r.get("train_method", "random")]
            loss = -np.asarray(copy["loss"])[: len(here)]
            known = -np.asarray(r["probe_losses"][label.split("-")[0]])
            told = ridge(np.column_stack([at, known]), target, np.column_stack([here, loss]))
            name = f"ridge on operation counts, parameters and {words} loss {ONE}{by}"
            spent = _search(copy, len(r["probes"]))  # also trains the probes on the copy
            self.add(name, r, told, spent, **paid)
            name = f"ridge + {words} loss {SUM}{by}"
            self.add(name, r, standard(plain) + standard(loss), _search(copy), **paid)
        return plain
