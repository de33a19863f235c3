"""The candidates that judge a copy: none of them was used in making it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import CondensedDataset
from hcdc.spaces import Space, from_spec, halves
from hcdc.tasks import Task

log = logging.getLogger("hcdc")


def judges(small: CondensedDataset, space: Space, candidates: int, seed: int) -> tuple[list[Config], int]:
    """Fresh candidates (role ``"judge"``), and how many were dropped because the copy was made with them."""
    used = set(small.meta.get("candidates") or [])
    if space.candidates() is None:
        drawn = space.sample(candidates, numpy_stream(seed, "judge"))
    else:
        half = halves(space, int(small.meta["seed"]))[1]
        drawn = [half[i] for i in numpy_stream(seed, "judge").permutation(len(half))[:candidates]]
    kept = [config for config in drawn if config_hash(config) not in used]
    return kept, len(drawn) - len(kept)


def checked_judges(
    small: CondensedDataset, task: Task, candidates: int, seed: int
) -> tuple[list[Config], int]:
    """`judges`, refused where they cannot be ranked."""
    numbers: dict[str, Any] = {"candidates": candidates, "seed": seed}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            text = " ".join(repr(value).split())[:60]
            raise InputError(f"{name} {text}: give a whole number (candidates are drawn anew, by the seed)")
    if seed < 0:
        raise InputError(f"seed {seed}: at least 0 is needed")
    if candidates < 2:
        raise InputError(
            f"candidates {candidates}: at least 2 are needed to speak of a ranking; 80 is the default"
        )
    if task.one_network:
        raise InputError(
            f"{task.one_network}, so there is no ranking to judge; make the copy with model 'space' or with "
            "a model of your own"
        )
    space = from_spec(small.meta["space"])
    configs, dropped = judges(small, space, candidates, seed)
    if len(configs) >= 2:
        return configs, dropped
    if len(configs) + dropped < candidates:
        raise InputError(
            f"candidates {candidates}: {_available(space, len(configs))}, which is too few for a ranking; "
            "it needs at least 2 to judge with"
        )
    raise InputError(
        f"candidates {candidates}: {dropped} of {dropped + len(configs)} were used to make this copy, "
        "which leaves no ranking to judge; ask for more"
    )


def warn_of_few(space: Space, candidates: int, judging: int, dropped: int) -> None:
    """Say that fewer candidates judge than were asked for."""
    if judging + dropped < candidates:
        asked = f"{candidates:,} candidates were asked for, and {judging:,} judge the copy"
        log.warning("%s: %s", asked, _available(space, judging + dropped))


def refuse_alike(configs: Sequence[Config], scores: Sequence[float]) -> None:
    """Refuse candidates that all have one full-data score: there is no ranking to agree with."""
    if len(set(scores)) > 1:
        return
    names = sorted({key for config in configs for key in config})
    differ = [name for name in names if len({str(config.get(name)) for config in configs}) > 1]
    raise InputError(
        f"all {len(configs)} candidates score {scores[0]:.4g} on the full data, so there is no ranking to "
        f"judge; check that training reads {', '.join(repr(name) for name in differ)}"
    )


def _available(space: Space, judging: int) -> str:
    """How many candidates a space has, and how many of them may judge."""
    every = space.candidates()
    if every is None:
        return f"space '{space.name}' has {judging:,} different ones"
    return f"space '{space.name}' has {len(every):,}, and the half that condensing never uses is {judging:,}"
