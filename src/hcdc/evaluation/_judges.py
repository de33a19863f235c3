"""The candidates that judge a copy; none of them was used to make it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import torch

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import CondensedDataset
from hcdc.spaces import Space, from_spec, halves
from hcdc.tasks import Task

log = logging.getLogger("hcdc")
OR_LIST = " or a list of configurations"


def judges(small: CondensedDataset, space: Space, candidates: int, seed: int) -> tuple[list[Config], int]:
    """New candidates (role ``"judge"``), and how many were dropped because the copy was made with them."""
    used = set(small.meta.get("candidates") or [])
    if space.candidates() is None:
        drawn = space.sample(candidates, numpy_stream(seed, "judge"))
    else:
        half = halves(space, int(small.meta["seed"]))[1]
        drawn = [half[i] for i in numpy_stream(seed, "judge").permutation(len(half))[:candidates]]
    kept = [config for config in drawn if config_hash(config) not in used]
    return kept, len(drawn) - len(kept)


def checked_judges(
    small: CondensedDataset,
    task: Task,
    candidates: int | Sequence[Config],
    seed: int,
    others: Sequence[CondensedDataset] = (),
) -> tuple[list[Config], int]:
    """`judges`, or the given configurations; refuses those that cannot be ranked.

    ``others`` are copies that the same candidates judge too.
    """
    numbers: dict[str, Any] = {"candidates": candidates, "seed": seed}
    if isinstance(candidates, list | tuple) and all(isinstance(each, dict) for each in candidates):
        del numbers["candidates"]
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            text = " ".join(repr(value).split())[:60]
            raise InputError(f"{name} {text}: give a whole number" + ("" if name == "seed" else OR_LIST))
    if seed < 0:
        raise InputError(f"seed {seed}: at least 0 is needed")
    space = from_spec(small.meta["space"])
    if why := task.one_network(space):
        raise InputError(
            f"{why}, so there is nothing to rank; make the copy with model 'space' or with your own model"
        )
    if isinstance(candidates, Sequence):
        _check_listed(candidates, space, [small, *others])
        return list(candidates), 0
    if candidates < 2:
        raise InputError(f"candidates {candidates}: a ranking needs at least 2; the default is 80")
    configs, dropped = judges(small, space, candidates, seed)
    if len(configs) >= 2:
        return configs, dropped
    if len(configs) + dropped < candidates:
        raise InputError(
            f"candidates {candidates}: {_available(space, len(configs))}; a ranking needs at least 2"
        )
    raise InputError(
        f"candidates {candidates}: {dropped} of {dropped + len(configs)} were used to make this copy, "
        "which leaves nothing to rank; ask for more"
    )


def _check_listed(configs: Sequence[Config], space: Space, copies: Sequence[CondensedDataset]) -> None:
    """Refuse configurations of another space, too few, duplicates, and those a copy was made with."""
    for config in configs:
        space.check(config)
    same = [config_hash(space.counterpart(config)) for config in configs]
    if len(set(same)) < max(2, len(configs)):
        raise InputError(
            f"candidates: {len(configs)} configurations, {len(set(same))} of them different; give at "
            "least 2, without duplicates"
        )
    used = {name for small in copies for name in small.meta["candidates"]}
    met = [config for config, name in zip(configs, same) if name in used or config_hash(config) in used]
    if met:
        raise InputError(
            f"candidates: {len(met)} of {len(configs)} were used to make the copy, so they cannot judge it; "
            f"leave out {met[0]}"
        )


def check_beside(small: CondensedDataset, beside: Mapping[str, CondensedDataset]) -> None:
    """Refuse copies that need candidates trained differently."""

    def shared(copy: CondensedDataset) -> list[Any]:
        recipe = {**copy.meta["calibrated_recipe"], "metric": None}
        return [copy.meta["data"], copy.meta["task"], recipe]

    own = small.train.tensors()
    for name, other in beside.items():
        mine = {key: value.to(own["y"].device) for key, value in other.train.tensors().items()}
        same = mine.keys() == own.keys() and all(torch.equal(own[key], mine[key]) for key in own)
        if not same or shared(other) != shared(small):
            raise InputError(
                f"beside '{name}': its S_train or recipe differs from the copy's; evaluate it separately"
            )


def warn_of_few(space: Space, candidates: int, judging: int, dropped: int) -> None:
    """Warn if fewer candidates judge than were asked for."""
    if judging + dropped < candidates:
        asked = f"{candidates:,} candidates were asked for, but only {judging:,} judge the copy"
        log.warning("%s: %s", asked, _available(space, judging + dropped))


def refuse_alike(configs: Sequence[Config], scores: Sequence[float]) -> None:
    """Refuse candidates that all have the same full-data score."""
    if len(set(scores)) > 1:
        return
    names = sorted({key for config in configs for key in config})
    differ = [name for name in names if len({str(config.get(name)) for config in configs}) > 1]
    raise InputError(
        f"all {len(configs)} candidates score {scores[0]:.4g} on the full data, so there is nothing to rank; "
        f"check that training reads {', '.join(repr(name) for name in differ)}"
    )


def _available(space: Space, judging: int) -> str:
    """How many candidates a space has, and how many of them can judge."""
    every = space.candidates()
    if every is None:
        return f"space '{space.name}' has {judging:,} different ones"
    return f"space '{space.name}' has {len(every):,}, of which condensing leaves {judging:,} unused"
