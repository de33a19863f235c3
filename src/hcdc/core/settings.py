"""Settings that check themselves: frozen dataclasses whose fields declare what they allow.

Example:
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Own(Settings):
    ...     name = "own"
    ...     lr: float = setting(0.1, above=0)
    >>> Own(lr=-1)
    Traceback (most recent call last):
    hcdc.core.errors.InputError: setting 'lr' of method 'own' must be more than 0, got -1
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

from hcdc.core.errors import InputError, unknown_name

Presets = Mapping[str, Mapping[str, Any]]
"""``{preset: {"note": where it comes from, "settings": {name: value}}}``."""


def setting(
    default: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    also: float | None = None,
    choices: Sequence[str] = (),
    note: str = "",
) -> Any:
    """A field of `Settings` and the values it allows.

    Args:
        default: The default value.
        least, most: Inclusive bounds.
        above, below: Exclusive bounds.
        also: One more allowed value outside the bounds.
        choices: The only words allowed.
        note: Text added to errors after the bounds, e.g. ``"0 takes all"``.
    """
    bounds = [
        f"{words} {bound:g}"
        for words, bound in (
            ("at least", least),
            ("more than", above),
            ("at most", most),
            ("less than", below),
        )
        if bound is not None
    ]
    before, after = "" if also is None else f"{also:g} or ", f" ({note})" if note else ""

    def fits(value: float) -> bool:
        return value == also or (
            (least is None or value >= least)
            and (above is None or value > above)
            and (most is None or value <= most)
            and (below is None or value < below)
        )

    check = {"fits": fits, "allowed": before + " and ".join(bounds) + after} if bounds else {}
    return dataclasses.field(default=default, metadata={"choices": tuple(choices), **check})


TYPES: dict[str, type] = {"int": Integral, "float": Real, "str": str, "bool": bool}
"""Required type of a value, by its field's annotation."""


@dataclass(frozen=True)
class Settings:
    """Base of every frozen dataclass of settings; checks types and bounds on creation.

    Attributes:
        name: What the settings belong to, for error messages.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            self._check_setting(field, getattr(self, field.name))

    def _check_setting(self, field: dataclasses.Field[Any], value: Any) -> None:
        what, choices = f"setting '{field.name}' of {self.owner()}", field.metadata.get("choices")
        if choices:
            if value not in choices:
                raise unknown_name(field.name, str(value), choices)
            return
        written = field.type.__name__ if isinstance(field.type, type) else str(field.type)
        kind, _, optional = written.partition(" | ")
        if value is None and optional == "None":
            return
        wanted: Any = TYPES.get(kind, object)
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted in (Integral, Real)):
            raise InputError(f"{what} must be {kind}, got {value!r}")
        if wanted is Real and not math.isfinite(value):
            raise InputError(f"{what} must be finite, got {value}")
        if "fits" in field.metadata and not field.metadata["fits"](value):
            raise InputError(f"{what} must be {field.metadata['allowed']}, got {value}")

    @classmethod
    def owner(cls) -> str:
        """What the settings belong to, in words."""
        return f"method '{cls.name}'"

    @classmethod
    def names(cls) -> list[str]:
        """The names of all settings."""
        return [field.name for field in dataclasses.fields(cls)]

    @classmethod
    def check_names(cls, given: Iterable[str]) -> None:
        """Refuse a name that is not a setting."""
        names = cls.names()
        for name in given:
            if name not in names:
                if not names:
                    raise InputError(f"{cls.owner()} has no settings, but '{name}' was given")
                raise unknown_name(f"setting of {cls.owner()}", name, names)

    @classmethod
    def from_preset(
        cls,
        preset: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        presets: Presets | None = None,
    ) -> Self:
        """Settings from a preset, with overrides.

        Args:
            preset: One of ``presets``; None takes the class defaults.
            overrides: Settings that differ from the preset.
            presets: The known presets.
        """
        known, overrides = presets or {}, overrides or {}
        if preset is not None and preset not in known:
            raise unknown_name(f"preset of {cls.owner()}", preset, known)
        cls.check_names(overrides)
        return cls(**{**({} if preset is None else known[preset]["settings"]), **overrides})

    def settings(self) -> dict[str, Any]:
        """All settings as plain JSON."""
        return dataclasses.asdict(self)

    def completed(self, stored: Mapping[str, Any] | None) -> dict[str, Any]:
        """Settings read from a file, with the defaults of those that its version did not have yet."""
        return {**{field.name: field.default for field in dataclasses.fields(self)}, **(stored or {})}
