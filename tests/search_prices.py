"""Trainings with a price of their own, so that a search does not depend on the speed of the machine."""

import dataclasses

from hcdc.search._task_problem import TrainedRung


def priced(patch, full=10.0):
    """Let a full training cost ``full`` seconds, others their share of it."""
    real = TrainedRung.run

    def run(self, configs, seed):
        for outcome in real(self, configs, seed):
            yield dataclasses.replace(outcome, seconds=full * self.share)

    patch.setattr(TrainedRung, "run", run)
    patch.setattr(TrainedRung, "forecast", lambda self, configs, budget: full * self.share)
