"""The interface of ways to make S_val, and their registry.

A new way is one subclass of `Validation`: a frozen dataclass whose fields are its settings, registered by
name. It may be defined outside the package.

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
    """What a way receives when the work begins.

    Attributes:
        task: The plan's task, on ``device``.
        s_train: S_train, on ``device``.
        device: Where to compute.
        checkpoint: Where an interrupted run continues; each phase has a child of it.
        progress: Where progress is reported.
        networks: Where candidates trained on S_train are kept; None keeps them in ``checkpoint``.
    """

    task: Task
    s_train: Any
    device: torch.device | str
    checkpoint: Checkpoint
    progress: Progress
    networks: Checkpoint | None = None


@dataclass(frozen=True)
class Made:
    """The result of a way.

    Attributes:
        val: S_val; None means the real validation set.
        says: What the condensed file says about it; JSON-able, and equal for equal runs.
        record: What goes into the record beside the file.
    """

    val: Any
    says: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Validation(Settings, ABC):
    """A way to make S_val. Subclasses are frozen dataclasses whose fields are its settings.

    Attributes:
        name: The registered name, ``val_method`` of `condense`.
        learned: S_val is learned for a search space. Such ways belong to method ``"hcdc"`` and rank
            candidates on the copy by loss.
        reduces: The method that makes S_train also makes S_val.
        fixed: Fields that cannot be set; the file states them for completeness.
        otherwise: The way that named presets describe, if they do not describe this one.
    """

    otherwise: ClassVar[str] = ""
    learned: ClassVar[bool] = True
    reduces: ClassVar[bool] = False
    fixed: ClassVar[frozenset[str]] = frozenset()

    # --- settings -----------------------------------------------------------------------------------------

    @classmethod
    def for_task(cls, task: Task) -> type[Validation]:
        """The class that serves a task: this one, unless the name means different things for tasks."""
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
        """Settings from an HCDC preset and overrides; ignores the preset's settings of other ways."""
        presets = validation_presets() if presets is None else presets
        if preset is not None and preset not in presets:
            raise unknown_name("preset of method 'hcdc'", preset, presets)
        cls.check_names(overrides or {})
        own = {each.name for each in dataclasses.fields(cls)}
        chosen = {k: v for k, v in presets[preset or "default"]["settings"].items() if k in own}
        return cls(**{**chosen, **(overrides or {})})

    def for_space(self, space: Space, given: Mapping[str, Any]) -> Validation:
        """This way with settings adapted to a space; ``given`` settings stay."""
        return self

    # --- before the work ----------------------------------------------------------------------------------

    def refuse(self, task: Task, space: Space, seed: int) -> None:
        """Refuse a task or a space that this way cannot serve, before any work."""
        if self.learned and (why := task.one_network(space)):
            raise InputError(
                f"{why}, so there is no order to learn; leave it out, or choose val_method "
                "'same', 'random' or 'real'"
            )

    def val_size(self, task: Task, train_size: int) -> int:
        """The default |S_val|."""
        return min(task.val_size(train_size), task.most("val")) or task.least

    def check_size(self, task: Task, size: int) -> None:
        """Refuse an impossible size of S_val."""
        task.check_size("val", size)

    def metric(self, task: Task) -> str:
        """What ranks candidates on S_val, ``"loss"`` or ``"accuracy"``."""
        return "loss" if self.learned or task.num_classes is None else "accuracy"

    def asked(self, space: Space, seed: int) -> list[Config]:
        """Candidates whose full-data results it needs; none by default."""
        return []

    def describe(self, plan: Plan) -> dict[str, Any]:
        """What the condensed file says about the plan, besides the settings."""
        return {}

    def sized(self, plan: Plan) -> str:
        """The size of S_val in words."""
        return plan.task.sized(plan.val_size)

    def doubt(self, task: Task) -> str:
        """What recorded results say against this way for a task; empty if nothing."""
        return ""

    def cost(self, plan: Plan, task: Task, device: torch.device | str) -> list[Expense]:
        """The cost of making S_val; ``task`` is the plan's, on ``device``."""
        return []

    # --- the work -----------------------------------------------------------------------------------------

    @abstractmethod
    def make(self, plan: Plan, work: Work) -> Made:
        """Make S_val.

        Equal arguments give equal bytes. An interrupted run with the same checkpoint continues to the same
        result.

        Args:
            plan: Space, sizes, recipes, seed, full-data results and the method that makes S_train.
            work: Task, S_train and device of the run, its checkpoint and progress.
        """


VALIDATIONS: dict[str, type[Validation]] = {}
"""Ways to make S_val by name."""

W = TypeVar("W", bound=type[Validation])


def register_validation(way: W) -> W:
    """Class decorator that registers a way to make S_val by its name."""
    known = VALIDATIONS.setdefault(way.name, way)
    if known.__qualname__ != way.__qualname__ or known.__module__ != way.__module__:
        raise InputError(f"val_method '{way.name}' is registered already, as {known.__qualname__}")
    VALIDATIONS[way.name] = way
    return way


def refuse_without_gradients(name: str, task: Task) -> None:
    """Refuse a task whose model has no gradients, for a way that needs them."""
    if why := task.without_gradients():
        raise InputError(f"val_method '{name}': {why}")


def make_validation(
    name: str, task: Task, preset: str | None = None, options: Mapping[str, Any] | None = None
) -> Validation:
    """A way to make S_val for a task.

    Args:
        name: One of `VALIDATIONS`.
        task: Decides what the name means, if that differs between tasks.
        preset: One of `validation_presets`; a way uses the settings that it has.
        options: Changed settings. An unknown one is refused, naming the ways that have it.
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
    """HCDC's presets: ``{preset: {"note", "settings"}}``; a way uses the settings that it has."""
    text = resources.files("hcdc.condensers").joinpath("presets", "hcdc.json").read_text()
    presets: dict[str, dict[str, Any]] = json.loads(text)
    return presets
