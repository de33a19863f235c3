"""Full-data results from a finished Optuna study."""

from __future__ import annotations

from typing import Any

from hcdc.core.errors import InputError, require
from hcdc.truth._base import ListedTruth


class StudyTruth(ListedTruth):
    """Results of a study's finished trials: ``params`` is the configuration, ``value`` the score.

    If the study minimises, the score is minus its value. Among trials with equal parameters the first counts.

    Args:
        study: An ``optuna.Study``, or the name of one in ``storage``.
        storage: The storage's URL, e.g. ``"sqlite:///study.db"``, if ``study`` is a name.
        test: A trial's user attribute with its test score, in the direction of its value.
        seconds: A trial's user attribute with its training seconds; defaults to the trial's duration.
    """

    def __init__(self, study: Any, storage: str | None = None, test: str = "test", seconds: str = "seconds"):
        if isinstance(study, str):
            study = require("optuna", "hpo").load_study(study_name=study, storage=storage)
        if len(study.directions) != 1:
            raise InputError(
                f"truth: study '{study.study_name}' has {len(study.directions)} objectives; one is needed"
            )
        sign = 1.0 if study.directions[0].name == "MAXIMIZE" else -1.0
        found: dict[str, tuple[dict[str, Any], dict[str, float]]] = {}
        for trial in study.trials:
            if trial.state.name != "COMPLETE":
                continue
            figures = {"val": sign * trial.value}
            if test in trial.user_attrs:
                figures["test"] = sign * float(trial.user_attrs[test])
            if seconds in trial.user_attrs:
                figures["seconds"] = float(trial.user_attrs[seconds])
            elif trial.duration is not None:
                figures["seconds"] = trial.duration.total_seconds()
            found.setdefault(str(sorted(trial.params.items())), (dict(trial.params), figures))
        self.study_name = study.study_name
        super().__init__(list(found.values()), f"study '{study.study_name}'")

    def spec(self) -> dict[str, Any]:
        return {"name": "study", "study": self.study_name, "trials": len(self)}

    def words(self) -> str:
        return f"Optuna study {self.study_name} ({len(self):,} configurations)"
