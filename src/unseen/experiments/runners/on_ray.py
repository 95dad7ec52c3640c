"""Run jobs as tasks of a Ray cluster; a job whose worker is lost starts again and resumes."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from unseen.checks import check_int, check_number
from unseen.errors import UnseenError
from unseen.experiments.runners.call import RemoteCall
from unseen.experiments.runners.jobs import Ending, Job, Runner

log = logging.getLogger("unseen")

ATTEMPTS = 3  # to start Ray on this machine


def run_remotely(call: RemoteCall) -> int:
    """Run a call in a worker of Ray."""
    return call()


class RayRunner(Runner):
    """A Ray task for each job, all submitted at once: Ray places them as resources come free.

    Args:
        address: of a running cluster, such as "auto" or "10.0.0.1:6379"; by default Ray starts on
            this machine, unless this process already uses it.
        workers: jobs at a time; by default all that fit.
        cpus: CPUs of a job, which are also its threads.
        gpus: GPUs of a job; a fraction lets several jobs share one.
        retries: how often a job is started again after its worker was lost.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        cpus: int = 1,
        gpus: float = 0,
        retries: int = 3,
    ) -> None:
        self.cpus = check_int("cpus", cpus, 1)
        self.gpus = check_number("gpus", gpus, 0)
        self.retries = check_int("retries", retries, 0)
        if workers is not None:
            self.slots = check_int("workers", workers, 1)
        self.ray, self.owned = connect(address, None if workers is None else workers * cpus)
        try:
            self._check_resources(address)
        except UnseenError:
            self.close()
            raise
        self._submit = self.ray.remote(
            num_cpus=self.cpus,
            num_gpus=self.gpus,
            max_retries=0,  # `run_jobs` starts lost jobs again, and shows it
            runtime_env={"env_vars": self._variables()},
        )(run_remotely)

    def _variables(self) -> dict[str, str]:
        variables = {"OMP_NUM_THREADS": str(self.cpus)}  # read when torch is imported
        return variables if self.gpus else {**variables, "CUDA_VISIBLE_DEVICES": ""}

    def _check_resources(self, address: str | None) -> None:
        """Refuse jobs that no node has room for; a cluster of others may still grow."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        wanted = {"CPU": self.cpus, "GPU": self.gpus}
        if any(all(n.get(kind, 0) >= amount for kind, amount in wanted.items()) for n in nodes):
            return
        largest = {kind: max((n.get(kind, 0) for n in nodes), default=0) for kind in wanted}
        problem = (
            f"no node of the Ray cluster has {self.cpus} CPUs and {self.gpus:g} GPUs for a run: "
            f"the largest have {largest['CPU']:g} and {largest['GPU']:g}"
        )
        if address is None:
            raise UnseenError(f"{problem}; lower --cpus or --gpus")
        log.warning("%s; the runs wait for a node that has", problem)

    def start(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.log.parent.mkdir(parents=True, exist_ok=True)
            job.log.unlink(missing_ok=True)  # its return shows that the job runs
            call = RemoteCall(job.function, job.arguments, job.log.absolute(), self.cpus)
            job.handle = self._submit.options(name=job.label).remote(call)
            job.state = "queued"

    def ending(self, job: Job) -> Ending | None:
        errors = self.ray.exceptions
        done, _ = self.ray.wait([job.handle], timeout=0)
        if not done:
            if job.state == "queued" and job.log.exists():
                job.state = "running"
            return None
        try:
            code = self.ray.get(job.handle)
            return Ending(code, f"exit {code}")
        except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
            return Ending(1, str(error).strip().splitlines()[-1])
        except errors.RayError as error:
            return Ending(None, f"lost its worker ({type(error).__name__})")

    def capacity(self) -> int:
        """Return how many jobs the cluster has room for now."""
        total = self.ray.cluster_resources()
        rooms = [total.get("CPU", 0) / self.cpus]
        if self.gpus:
            rooms.append(total.get("GPU", 0) / self.gpus)
        return max(1, int(min(self.slots, *rooms)))

    def wait(self, jobs: Sequence[Job], seconds: float) -> None:
        if jobs:
            self.ray.wait([job.handle for job in jobs], timeout=seconds)
        else:
            super().wait(jobs, seconds)

    def stop(self, job: Job) -> None:
        self.ray.cancel(job.handle, force=True)

    def close(self) -> None:
        """Leave the cluster; stop Ray if this runner has started it."""
        if self.owned:
            self.ray.shutdown()


def connect(address: str | None, cpus: int | None = None) -> tuple[Any, bool]:
    """Connect to a Ray cluster, or start Ray here; return the module, and whether to shut it down.

    Args:
        cpus: of a Ray that is started here; by default all of this machine.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report over the network
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns about GPUs
    try:
        import ray
    except ImportError as error:
        raise UnseenError("--on ray needs Ray: pip install 'unseen[ray]'") from error

    if ray.is_initialized():
        if address is not None and address not in ("auto", ray.get_runtime_context().gcs_address):
            raise UnseenError(
                f"this process already uses the Ray cluster at "
                f"{ray.get_runtime_context().gcs_address}, not {address}: call ray.shutdown() first"
            )
        return ray, False
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    # Without an address, a Ray that happens to run on this machine would be joined.
    if address is None:  # on a cluster, its owner decides how nice workers are
        os.environ.setdefault("RAY_worker_niceness", "0")
    local = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
    try:
        if address is None:
            _start_here(ray, {**options, **local})
        else:
            ray.init(address=address, **options)
    except Exception as error:  # Ray raises many types
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UnseenError(
            f"cannot {'start Ray' if address is None else f'reach the Ray cluster at {address}'}: "
            f"{first}"
        ) from error
    return ray, True


def _start_here(ray: Any, options: dict[str, Any]) -> None:
    """Start Ray on this machine; on a busy one it may give up, hence several attempts."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            ray.init(**options)
            return
        except Exception:
            ray.shutdown()
            if attempt == ATTEMPTS:
                raise
            log.warning("Ray did not start; attempt %d of %d", attempt + 1, ATTEMPTS)
