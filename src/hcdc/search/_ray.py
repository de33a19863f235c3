"""Trials on a Ray cluster: asked for in batches of fixed size, told in order."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hcdc.core.errors import HcdcError, InputError, require
from hcdc.search._executor import Executor, Made

log = logging.getLogger("hcdc")
RETRIES = 3
"""How often a trial whose worker dies is run again."""


class RayExecutor(Executor):
    """Runs each trial as a task of a Ray cluster.

    The driver hands over ``batch`` trials, waits for all of them and reports them in order. What a search
    does follows from that number, never from the number of workers. Seconds are each trial's own, so a
    budget means the same work as in one process, and several workers spend it in less time. A trial whose
    worker dies runs again. The data is sent once per search; arrays arrive read-only. Nodes need this
    package. An objective in the script that is run travels with the search; modules are looked for in the
    folders where this process finds them, so nodes must share these or have the modules installed. If Ray was
    started before (``ray.init``), its own settings hold.

    The candidates of an hcdc task, which train together in one process, are divided into ``batch`` parts.

    Args:
        address: Address of the cluster; None takes the one that is running, else starts one on this machine.
        batch: Trials handed over together.
        cpus: Processors per trial.
        gpus: Accelerators per trial; None takes one if the cluster has any.
    """

    elsewhere = True

    def __init__(
        self, address: str | None = None, batch: int = 8, cpus: float = 1, gpus: float | None = None
    ):
        self._ray, self.batch = ray_cluster(address), batch
        self._cpus, self._gpus = cpus, gpus
        self._sent: dict[int, tuple[Any, Any]] = {}

    def _put(self, value: Any) -> Any:
        """Send an object to the cluster, once."""
        if id(value) not in self._sent:
            self._sent[id(value)] = value, self._ray.put(value)  # kept, so that its id stays its own
        return self._sent[id(value)][1]

    def map(
        self,
        function: Callable[..., Made],
        shared: Sequence[Any],
        jobs: Sequence[Any],
        lost: Callable[[Any, str], Made],
    ) -> Iterator[Made]:
        task = ray_task(self._ray, function, self._cpus, self._gpus)
        sent = [self._put(value) for value in shared]
        running = [task.remote(*sent, job) for job in jobs]
        for job, one in zip(jobs, running):
            yield self._result(job, one, lost)

    def _result(self, job: Any, task: Any, lost: Callable[[Any, str], Made]) -> Made:
        errors = self._ray.exceptions
        try:
            found: Made = self._ray.get(task)
        except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError) as error:
            return lost(job, f"{type(error).__name__}: its worker died")
        except errors.RayError as error:  # not the objective's own, which is caught where it runs
            if isinstance(cause := getattr(error, "cause", None), HcdcError):
                raise cause from None  # a task's own sentence
            last = str(error).strip().splitlines()[-1]
            raise HcdcError(
                f"a Ray worker cannot run a trial ({last}); its modules must be found on every node"
            ) from error
        return found


def ray_cluster(address: str | None) -> Any:
    """Ray, connected to the cluster at ``address``, or as `RayExecutor` says."""
    ray: Any = require("ray", "ray")
    if ray.is_initialized():
        if address is not None:
            log.info("Ray runs in this process already, so address %s is ignored", address)
    else:
        data = os.environ.get("HCDC_DATA")
        found = {"PYTHONPATH": folders()} | ({"HCDC_DATA": os.path.abspath(data)} if data else {})
        try:
            ray.init(
                address=address, log_to_driver=False, logging_level="warning", runtime_env={"env_vars": found}
            )
        except ConnectionError as error:
            raise HcdcError(f"no Ray cluster at address {address!r}: {error}") from error
    return ray


def ray_task(ray: Any, function: Callable[..., Any], cpus: float = 1, gpus: float | None = None) -> Any:
    """A function as a task of the cluster; it runs again if its worker dies."""
    if gpus is None:
        gpus = 1 if ray.cluster_resources().get("GPU") else 0
    return ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(function)


def folders() -> str:
    """Where this process finds the user's own modules, before what a node has in its PYTHONPATH."""
    found = [path for path in (os.getcwd(), *sys.path) if path and not path.startswith(sys.base_prefix)]
    own = [path for path in found if not path.startswith(sys.prefix)]
    return os.pathsep.join([*dict.fromkeys(own), "${PYTHONPATH}"])


def executor_of(backend: str | Executor | None, address: str | None) -> Executor:
    """The executor that ``backend`` names."""
    if backend == "ray":
        return RayExecutor(address)
    if address is not None:
        raise InputError(f"address {address!r} is that of a Ray cluster; add backend='ray'")
    if backend is None or isinstance(backend, Executor):
        return backend or Executor()
    raise InputError(f"backend {backend!r} is not known; choose 'ray' or leave it out")
