"""Options that choose where the runs of a grid run, and the runner they ask for."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from unseen.cli.arguments import Count, CountOrNone
from unseen.errors import UnseenError
from unseen.experiments.runners.jobs import Runner
from unseen.experiments.runners.local import LocalRunner
from unseen.experiments.runners.on_ray import RayRunner
from unseen.experiments.runners.on_slurm import SlurmRunner


@dataclass(frozen=True)
class ClusterOptions:
    """Where to run: this machine, a Ray cluster, or Slurm.

    Parameters
    ----------
    on
        local: processes of this machine. ray: tasks of a Ray cluster. slurm: a job array.
    address
        Of a running Ray cluster, e.g. auto or 10.0.0.1:6379. By default Ray starts here.
    cpus
        CPUs of a run on a cluster, also its threads.
    gpus
        GPUs of a run on a cluster; with Ray, 0.5 lets two runs share one.
    retries
        How often a run that has lost its worker on a cluster is started again; it resumes.
    partition
        Partition of Slurm.
    minutes
        Time limit of a run on Slurm; a run that reaches it is requeued and resumes.
    memory
        Gigabytes of a run on Slurm.
    sbatch
        Further options of sbatch as key=value, e.g. account=vision; repeatable.
    """

    on: Literal["local", "ray", "slurm"] = "local"
    address: str | None = None
    cpus: Count = 1
    gpus: float = 0.0
    retries: Count = 3
    partition: str | None = None
    minutes: Count = 720
    memory: float | None = None
    sbatch: Annotated[list[str] | None, Parameter(negative="")] = None


Cluster = Annotated[ClusterOptions | None, Parameter(name="*")]
USED = {
    "local": {"on"},
    "ray": {"on", "address", "cpus", "gpus", "retries"},
    "slurm": {f.name for f in fields(ClusterOptions)} - {"address"},
}


def make_runner(options: ClusterOptions | None, workers: CountOrNone, default: int) -> Runner:
    """Return the runner that the options ask for; `default` is the local number of workers."""
    chosen = options or ClusterOptions()
    for field in fields(ClusterOptions):
        given = getattr(chosen, field.name) != field.default
        if given and field.name not in USED[chosen.on]:
            users = " or ".join(f"--on {on}" for on, names in USED.items() if field.name in names)
            raise UnseenError(f"--{field.name} is for {users}, not for --on {chosen.on}")
    if chosen.on == "local":
        return LocalRunner(default if workers is None else workers)
    common: dict[str, Any] = {
        "workers": workers,
        "cpus": chosen.cpus,
        "gpus": chosen.gpus,
        "retries": chosen.retries,
    }
    if chosen.on == "ray":
        return RayRunner(chosen.address, **common)
    more = dict(map(_pair, chosen.sbatch or []))
    return SlurmRunner(chosen.partition, chosen.minutes, memory=chosen.memory, more=more, **common)


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not (name and equals):
        raise UnseenError(f"--sbatch takes key=value, e.g. account=vision, not {word}")
    return name, value
