"""Run jobs as a Slurm job array by submitit; preempted and timed-out runs are requeued."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unseen.checks import check_int
from unseen.errors import UnseenError
from unseen.experiments.runners.call import RemoteCall
from unseen.experiments.runners.jobs import Ending, Job, Runner

FILES = "slurm"  # folder of submitit's own files, beside the logs


class SlurmRunner(Runner):
    """An element of a job array for each job; Slurm starts them as nodes come free.

    Args:
        partition: where to submit; by default that of the cluster.
        minutes: time limit of a run. A run that reaches it is requeued and resumes.
        workers: runs at a time; by default as Slurm decides.
        cpus: CPUs of a run, which are also its threads.
        gpus: GPUs of a run.
        memory: of a run, in gigabytes; by default that of the partition.
        retries: how often a run may reach its time limit, or lose its node.
        more: further parameters of sbatch, such as {"account": "vision"}.
        cluster: "local" runs the same jobs in processes of this machine.
    """

    def __init__(
        self,
        partition: str | None = None,
        minutes: int = 720,
        *,
        workers: int | None = None,
        cpus: int = 1,
        gpus: float = 0,
        memory: float | None = None,
        retries: int = 3,
        more: Mapping[str, str] | None = None,
        cluster: str = "slurm",
    ) -> None:
        self.threads = check_int("cpus", cpus, 1)
        self.retries, self.cluster = check_int("retries", retries, 0), cluster
        if int(gpus) != gpus:
            raise UnseenError(f"--gpus must be a whole number on Slurm, not {gpus}")
        try:
            import submitit
        except ImportError as error:
            raise UnseenError("--on slurm needs submitit: pip install 'unseen[slurm]'") from error
        if cluster == "slurm" and shutil.which("sbatch") is None:
            raise UnseenError(
                "no Slurm on this machine: the command sbatch is missing; start the grid on a node "
                "that submits jobs"
            )
        self.submitit = submitit
        self.executor: Any = None
        self.parameters: dict[str, Any] = {
            "timeout_min": check_int("minutes", minutes, 1),
            "cpus_per_task": self.threads,
            "slurm_additional_parameters": {"requeue": True, **(more or {})},
            **({"gpus_per_node": int(gpus)} if gpus else {}),
            **({"slurm_partition": partition} if partition else {}),
            **({"mem_gb": memory} if memory else {}),
        }
        if workers is not None:
            check_int("workers", workers, 1)
            self.parameters["slurm_array_parallelism"] = workers
            if cluster == "local":
                self.slots = workers

    def start(self, jobs: Sequence[Job]) -> None:
        executor = self._executor(jobs[0].log.parent / FILES)
        for job in jobs:
            job.log.parent.mkdir(parents=True, exist_ok=True)
            job.log.unlink(missing_ok=True)  # its return shows that the job runs
        try:
            with executor.batch():
                for job in jobs:
                    call = RemoteCall(job.function, job.arguments, job.log.absolute(), self.threads)
                    job.handle = executor.submit(call)
        except self.submitit.core.utils.FailedJobError as error:
            raise UnseenError(f"Slurm refuses the job array: {str(error).strip()}") from error
        for job in jobs:
            job.state = "queued"

    def _executor(self, folder: Path) -> Any:
        """Return the executor, made when the folder of its files is known."""
        if self.executor is None:
            folder.mkdir(parents=True, exist_ok=True)
            made = self.submitit.AutoExecutor(
                folder=folder.absolute(),
                cluster=self.cluster,
                slurm_max_num_timeout=self.retries,
                local_max_num_timeout=self.retries,
            )
            made.update_parameters(**self.parameters)
            self.executor = made
        return self.executor

    def ending(self, job: Job) -> Ending | None:
        if not job.handle.done():
            if job.state == "queued" and job.log.exists():
                job.state = "running"
            return None
        errors = self.submitit.core.utils
        try:
            code = job.handle.result()
            return Ending(code, f"exit {code}")
        except errors.FailedJobError as error:
            lines = [line for line in str(error).splitlines() if "Error" in line]
            return Ending(1, lines[-1].strip() if lines else "exit 1")
        except errors.UncompletedJobError:
            return Ending(None, f"lost its node (job {job.handle.job_id}, {job.handle.state})")

    def stop(self, job: Job) -> None:
        job.handle.cancel(check=False)
