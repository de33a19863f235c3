"""What every way to make S_val shares, and their registry.

A new way is one subclass of `Validation`, a frozen dataclass whose fields are its settings, registered by
name. It may live in a file outside the package.

Example:
    >>> import torch
    >>> from dataclasses import dataclass
    >>> from hcdc.condensers import Made, Validation, Work, register_validation
    >>> @register_validation
    ... @dataclass(frozen=True)
    ... class First(Validation):
    ...     name = "first"
    ...     learned = False
    ...     def make(self, plan, work):
    ...         return Made(work.task.subset(work.task.val, torch.arange(plan.val_size)))
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import torch

from hcdc.condensers._cost import Expense
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import Config
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.progress import Progress
from hcdc.core.settings import Presets, Settings
from hcdc.spaces import Space
from hcdc.tasks import Task

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


@dataclass(frozen=True)
class Work:
    """What a way is given when the work begins.

    Attributes:
        task: The plan's task, on ``device``.
        s_train: S_train, on ``device``.
        device: Where to compute.
        checkpoint: Where an interrupted run continues; phases are its children.
        progress: Where progress is reported.
    """

    task: Task
    s_train: Any
    device: torch.device | str
    checkpoint: Checkpoint
    progress: Progress


@dataclass(frozen=True)
class Made:
    """What a way made.

    Attributes:
        val: S_val; None stands for the real validation set.
        says: What the condensed file says about it; JSON-able, and equal for equal runs.
        record: What the record beside the file says.
    """

    val: Any
    says: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Validation(Settings, ABC):
    """A way to make S_val. Subclasses are frozen dataclasses whose fields are its settings.

    Attributes:
        name: The registered name, ``val_method`` of `condense`.
        learned: S_val is learned for a search space. Such a way belongs to method ``"hcdc"``, and candidates
            on the copy are ranked by loss.
        reduces: The method that makes S_train makes S_val too.
        fixed: Fields that nobody may set; the file says them for completeness.
    """

    learned: ClassVar[bool] = True
    reduces: ClassVar[bool] = False
    fixed: ClassVar[frozenset[str]] = frozenset()

    # --- settings -----------------------------------------------------------------------------------------

    @classmethod
    def for_task(cls, task: Task) -> type[Validation]:
        """The class that serves a task: this one, unless the name means different things to tasks."""
        return cls

    @classmethod
    def owner(cls) -> str:
        return f"val_method '{cls.name}'"

    @classmethod
    def names(cls) -> list[str]:
        return [name for name in super().names() if name not in cls.fixed]

    @classmethod
    def from_preset(
        cls,
        preset: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        presets: Presets | None = None,
    ) -> Self:
        """Settings from a preset of HCDC, which may hold those of other ways too, and overrides."""
        presets = validation_presets() if presets is None else presets
        if preset is not None and preset not in presets:
            raise unknown_name("preset of method 'hcdc'", preset, presets)
        cls.check_names(overrides or {})
        own = {each.name for each in dataclasses.fields(cls)}
        chosen = {k: v for k, v in presets[preset or "default"]["settings"].items() if k in own}
        return cls(**{**chosen, **(overrides or {})})

    def for_space(self, space: Space, given: Mapping[str, Any]) -> Validation:
        """This way with the settings that follow from a space; those that were ``given`` stay."""
        return self

    # --- before the work ----------------------------------------------------------------------------------

    def refuse(self, task: Task, space: Space, seed: int) -> None:
        """Refuse a task or a space that this way cannot serve, before any work."""
        if self.learned and task.one_network:
            raise InputError(
                f"{task.one_network}, so there is no order to learn; leave it out, or choose val_method "
                "'same', 'random' or 'real'"
            )

    def val_size(self, task: Task, train_size: int) -> int:
        """|S_val| where nothing is said."""
        return min(task.val_size(train_size), task.most("val")) or task.least

    def check_size(self, task: Task, size: int) -> None:
        """Refuse a size of S_val that cannot be made."""
        task.check_size("val", size)

    def metric(self, task: Task) -> str:
        """What ranks candidates on S_val, ``"loss"`` or ``"accuracy"``."""
        return "loss" if self.learned or task.num_classes is None else "accuracy"

    def asked(self, space: Space, seed: int) -> list[Config]:
        """Candidates whose full-data results it needs; none by default."""
        return []

    def describe(self, plan: Plan) -> dict[str, Any]:
        """What the condensed file says about the plan, beside the settings."""
        return {}

    def sized(self, plan: Plan) -> str:
        """How many examples S_val has, in words."""
        return plan.task.sized(plan.val_size)

    def doubt(self, task: Task) -> str:
        """What recorded results say against this way for a task; empty for nothing."""
        return ""

    def cost(self, plan: Plan, task: Task, device: torch.device | str) -> list[Expense]:
        """What making S_val costs; ``task`` is the plan's, on ``device``."""
        return []

    # --- the work -----------------------------------------------------------------------------------------

    @abstractmethod
    def make(self, plan: Plan, work: Work) -> Made:
        """Make S_val.

        Equal arguments give equal bytes; an interrupted run with the same checkpoint continues and gives the
        same.

        Args:
            plan: Space, sizes, recipes, seed, full-data results and what makes S_train.
            work: What the run has.
        """


VALIDATIONS: dict[str, type[Validation]] = {}
"""Ways to make S_val by name."""

W = TypeVar("W", bound=type[Validation])


def register_validation(way: W) -> W:
    """Register a way to make S_val by its name; a decorator of its class."""
    known = VALIDATIONS.setdefault(way.name, way)
    if known.__qualname__ != way.__qualname__ or known.__module__ != way.__module__:
        raise InputError(f"val_method '{way.name}' is registered already, as {known.__qualname__}")
    VALIDATIONS[way.name] = way
    return way


def make_validation(
    name: str, task: Task, preset: str | None = None, options: Mapping[str, Any] | None = None
) -> Validation:
    """A way to make S_val for a task.

    Args:
        name: One of `VALIDATIONS`.
        task: Decides what the name means where that differs.
        preset: One of `validation_presets`; a way takes from it the settings that it has.
        options: Settings that differ. One that the way does not have is refused, with the ways that have it.
    """
    if name not in VALIDATIONS:
        raise unknown_name("val_method", name, VALIDATIONS)
    way = VALIDATIONS[name].for_task(task)
    forms = {other: form.for_task(task) for other, form in VALIDATIONS.items()}
    for key in options or {}:
        having = [other for other, form in forms.items() if key in form.names()]
        if having and name not in having:
            ways = " or ".join(f"'{other}'" for other in having)
            raise InputError(
                f"setting '{key}': val_method '{name}' has no such setting; leave it out, or choose "
                f"val_method {ways}"
            )
    return way.from_preset(preset, options)


@cache
def validation_presets() -> dict[str, dict[str, Any]]:
    """The presets of HCDC: ``{preset: {"note", "settings"}}``; a way takes the settings that it has."""
    text = resources.files("hcdc.condensers").joinpath("presets", "hcdc.json").read_text()
    presets: dict[str, dict[str, Any]] = json.loads(text)
    return presets
