"""The interface of rivals, and their registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hcdc.core.errors import unknown_name
from hcdc.core.recipe import Recipe
from hcdc.core.results import Rival
from hcdc.evaluation._context import Context


@dataclass(frozen=True)
class Forecast:
    """What is known about cost before the work.

    Attributes:
        step: Seconds per training step of one candidate and seed on the full data.
        copy: Seconds per trial on the copy.
        condense: Seconds spent making the copy; None if unknown.
        candidates: How many candidates judge.
        full: The recipe on the full data.
    """

    step: float
    copy: float
    condense: float | None
    candidates: int
    full: Recipe


class RivalMethod(ABC):
    """One way to rank the candidates that judge a copy.

    A subclass sets ``name``, defines `run` and is decorated with `register_rival`. Rivals run in the order of
    registration.
    """

    name: str

    def applies(self, context: Context) -> bool:
        """Whether it can run and differs from the copy itself."""
        return True

    def sets(self, context: Context) -> dict[str, Any]:
        """Validation sets, by name, on which candidates trained on S_train are scored for `run`.

        They are drawn before any training, so that errors come first.
        """
        return {}

    @abstractmethod
    def run(self, context: Context) -> Rival:
        """Scores and seconds: ``context.rival(...)`` or ``context.same_train(...)``."""

    def seconds(self, context: Context, forecast: Forecast) -> float:
        """Predicted seconds of `run`; 0 if nothing is trained for it alone."""
        return 0.0


_RIVALS: dict[str, RivalMethod] = {}
Method = TypeVar("Method", bound=type[RivalMethod])


def register_rival(method: Method) -> Method:
    """Class decorator: register a `RivalMethod` under its ``name``.

    Raises:
        ValueError: Another class has that name.
    """
    if method.name in _RIVALS:
        raise ValueError(f"a rival '{method.name}' is registered already: {_RIVALS[method.name]}")
    _RIVALS[method.name] = method()
    return method


def rival_names() -> list[str]:
    """Names of all rivals, in the order in which they run."""
    return list(_RIVALS)


def chosen_rivals(context: Context, rivals: bool | Sequence[str] = True) -> list[RivalMethod]:
    """The rivals that apply, out of all, none or the named ones."""
    names = rival_names() if rivals is True else list(rivals or ())
    for name in names:
        if name not in _RIVALS:
            raise unknown_name("rival", name, _RIVALS)
    return [one for name, one in _RIVALS.items() if name in names and one.applies(context)]
