"""What a reproduction is: settings by scale, units of work, a table with the paper's numbers beside ours."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hcdc.condensers import Plan
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.progress import Progress
from hcdc.core.ranks import mean_interval
from hcdc.core.settings import Settings
from hcdc.datasets import CondensedDataset, data
from hcdc.experiments._command import made_copy

Unit = dict[str, Any]
"""One piece of work as plain JSON: the data, the method, the size, the seed, and every other setting."""
Record = dict[str, Any]
SCALES = ("smoke", "small", "paper")
RECIPES = ("recipe", "full_recipe")
"""Groups of settings that no method has the name of."""
SEEDS = 100
"""The first reported seed; settings were chosen on smaller ones."""


NUMBERS = {
    "half an": 0.5, "half a": 0.5, "an": 1.0, "a": 1.0, "two": 2.0, "three": 3.0, "five": 5.0, "ten": 10.0,
    "twenty": 20.0,
}  # fmt: skip
UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}


@dataclass(frozen=True)
class Scale:
    """One size of a reproduction.

    Attributes:
        settings: Settings that differ from the class's.
        seeds: How many seeds are run.
        takes: Roughly how long, in words.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 1
    takes: str = "seconds"

    @property
    def seconds(self) -> float:
        """The same as a number; a plural without a number counts as three."""
        found = re.search(rf"(?:({'|'.join(NUMBERS)}) )?({'|'.join(UNITS)})", self.takes)
        return 0.0 if found is None else NUMBERS.get(found[1] or "three", 3.0) * UNITS[found[2]]


@dataclass(frozen=True)
class Table:
    """Rows of text below a head; notes say what differs from the paper."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


class Work:
    """Where units are run: a device, a folder for copies, and the data that was read.

    Args:
        device: Where to train.
        copies: Folder of finished copies, which are used again; None keeps none.
        progress: Where progress is reported.

    Attributes:
        started: What has run once, so that nothing after it is charged for starting the device.
    """

    def __init__(
        self, device: str = "cpu", copies: Path | None = None, progress: Progress | None = None
    ) -> None:
        self.device, self.copies, self.progress = device, copies, progress or Progress()
        self.data = functools.cache(data)
        self.started: set[str] = set()

    def copy(self, planned: Plan, networks: Path | None = None) -> CondensedDataset:
        """The copy of a plan, made or found in the folder; ``networks`` as in `Plan.run`."""
        return made_copy(planned, self.copies, self.device, self.progress, networks)


@dataclass(frozen=True)
class Reproduction(Settings):
    """A result of the paper by its name. Fields are its settings; ``--set KEY=VALUE`` changes them.

    Attributes:
        label: The paper's label, e.g. ``"tab:graphs"``.
        title: What is measured, in a few words.
        axes: Settings that the units range over; all others are the same for every unit.
        scales: What ``smoke``, ``small`` and ``paper`` mean.
        protocol: What records are marked with; the name by default.
    """

    label: ClassVar[str]
    title: ClassVar[str]
    axes: ClassVar[tuple[str, ...]]
    scales: ClassVar[Mapping[str, Scale]]
    protocol: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if "protocol" not in vars(cls):
            cls.protocol = cls.name

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            if isinstance(each.default, tuple):
                given = _listed(getattr(self, each.name))
                kinds = {type(value) for value in each.default}
                if not given or {type(value) for value in given} - kinds:
                    example = ",".join(map(str, each.default[:2]))
                    raise InputError(
                        f"--set {each.name}: give one or more, with commas, e.g. {each.name}={example}"
                    )
                object.__setattr__(self, each.name, given)
        for name in self.groups():
            self._group(name, getattr(self, name))
        super().__post_init__()

    @classmethod
    def groups(cls) -> dict[str, dict[str, Any]]:
        """Settings that hold several, as ``recipe``, and their defaults."""
        fields = dataclasses.fields(cls)
        return {each.name: each.default_factory() for each in fields if callable(each.default_factory)}

    @classmethod
    def _group(cls, name: str, value: Any) -> Mapping[str, Any]:
        """The settings of a group; refuses one value instead of them."""
        if isinstance(value, Mapping):
            return value
        if name not in cls.groups():
            raise InputError(f"--set {name}: this is one value, without settings of its own")
        inner = "steps=100" if name in RECIPES else "KEY=VALUE"
        raise InputError(f"--set {name}={value}: set one of its settings, as --set {name}.{inner}")

    @classmethod
    def owner(cls) -> str:
        return f"reproduction '{cls.name}'"

    @classmethod
    def at(cls, scale: str, changes: Mapping[str, Any] | None = None) -> Reproduction:
        """The reproduction at a scale, with settings changed."""
        if scale not in SCALES:
            raise unknown_name("--scale", scale, SCALES)
        given, groups = dict(cls.scales[scale].settings), cls.groups()
        for name, value in (changes or {}).items():
            of, _, inner = name.rpartition(".")
            if not of:
                given[name] = value
                continue
            group = "options" if "options" in groups and of not in (*cls.names(), *RECIPES) else of
            cls.check_names([group])
            held = cls._group(group, given.get(group, groups.get(group)))
            if group == of:
                given[group] = {**held, inner: value}
            else:  # --set dc.iterations=100 is an option of a method
                given[group] = {**held, of: {**held.get(of, {}), inner: value}}
        return cls.from_preset(overrides=given)

    def unit(self, seed: int, **given: Any) -> Unit:
        """A unit with the settings that all units share."""
        shared = {name: value for name, value in self.settings().items() if name not in self.axes}
        plain: Unit = json.loads(json.dumps({**given, "seed": seed, "settings": shared}))
        return plain

    @abstractmethod
    def units(self, seeds: Sequence[int]) -> list[Unit]:
        """All units of work, in the order of running."""

    @classmethod
    def owns(cls, record: Record) -> bool:
        """Whether a record is of this result; two results may share a protocol and its tables."""
        return record.get("protocol") == cls.protocol

    def check(self, unit: Unit, work: Work) -> None:
        """Refuse a unit that cannot be run, before any is; nothing by default."""
        return

    @abstractmethod
    def run(self, unit: Unit, work: Work) -> list[Record]:
        """Do a unit; the figures of one record, or of several."""

    @abstractmethod
    def table(self, found: Sequence[Record]) -> Table:
        """The table of the records, with the paper's numbers beside them."""

    def draw(self, found: Sequence[Record]) -> Any:
        """The figure of the records, if the result is one; else None."""
        return None


REPRODUCTIONS: dict[str, type[Reproduction]] = {}
"""All reproductions by name, in the order of the list."""

Registered = TypeVar("Registered", bound=type[Reproduction])


def register(reproduction: Registered) -> Registered:
    """Decorator: list a reproduction under its name."""
    REPRODUCTIONS[reproduction.name] = reproduction
    return reproduction


def _listed(value: Any) -> tuple[Any, ...]:
    """A tuple from a list, one value, or text with commas."""
    if isinstance(value, str):
        return tuple(_number(part.strip()) for part in value.split(",") if part.strip())
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _number(text: str) -> Any:
    return int(text) if text.isdigit() else text


# --- text of tables -----------------------------------------------------------------------------------------


def mean_text(values: Sequence[float], digits: int = 2) -> str:
    """Mean and half its 90 % interval over seeds, with their number; what is undefined is left out."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return "undefined" if values else "not run"
    mean, interval = mean_interval(known)
    spread = "" if math.isnan(interval.low) else f" ± {interval.high - mean:.{digits}f}"
    return f"{mean:.{digits}f}{spread} ({len(known)})"
