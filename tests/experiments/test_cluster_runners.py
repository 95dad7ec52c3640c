"""Grids on a Ray cluster of two nodes and by submitit: the tables are those of the local runner.

One cluster, started on this machine, serves all tests of Ray.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from command_line import unseen

from unseen import UnseenError
from unseen.deploy import BatchScorer, merge_sums
from unseen.experiments.grid import read_grid
from unseen.experiments.run_grid import run_grid
from unseen.experiments.runners.jobs import Job, run_jobs
from unseen.experiments.runners.on_ray import RayRunner
from unseen.experiments.runners.on_slurm import SlurmRunner
from unseen.tasks import task_named

EXAMPLES = Path(__file__).parents[2] / "examples"
GRID = """
task = "your_own_task:waves"
seeds = [0]
runs = "{folder}/runs"
results = "{folder}/results"
[set]
steps = 2000
checkpoint_every = 50
[[row]]
method = "erm"
"""
SECOND = """
[[row]]
method = "mixup"
"""


def make_grid(folder: Path, more: str = SECOND) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "grid.toml"
    path.write_text(GRID.format(folder=folder) + more)
    return path


@pytest.fixture(scope="module", autouse=True)
def examples():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        paths = filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")])
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))  # for actors of Ray Data
        yield


@pytest.fixture(scope="module")
def reference(tmp_path_factory, examples, quick_estimators):
    """The folder of the grid, run by processes of this machine."""
    folder = tmp_path_factory.mktemp("local")
    assert run_grid(read_grid(make_grid(folder)), workers=2, quiet=True)["failed"] == {}
    return folder


def start_cluster(head, other, attempts=5):
    """Start two nodes; a node of Ray gives up if its agent takes 15 s to start, as on a busy CI."""
    from ray.cluster_utils import Cluster

    for attempt in range(1, attempts + 1):
        made = Cluster()
        try:
            made.add_node(**head)
            return made, made.add_node(**other)
        except Exception:
            made.shutdown()
            if attempt == attempts:
                raise


@pytest.fixture(scope="module")
def cluster(examples):
    """A Ray cluster of two nodes with one CPU each, and its second node."""
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_raylet_start_wait_time_s", "60")
        patch.setenv("RAY_worker_niceness", "0")  # by default workers yield to everything else
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
        quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500}
        head = {**small, "include_dashboard": False, "_system_config": quick}
        made, second = start_cluster(head, small)
        ray.init(made.address, log_to_driver=False, logging_level=logging.ERROR)
        yield made, second
        ray.shutdown()
        made.shutdown()


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in VARIES}
    return [without_times(v) for v in value] if isinstance(value, list) else value


VARIES = ("seconds", "grid", "command", "results", "commit")  # paths, times


def runs_of(folder: Path) -> list[dict]:
    """The runs of runs.json, without what differs between any two grids."""
    content = json.loads((folder / "results/runs.json").read_text())
    return without_times(content["runs"] if isinstance(content, dict) else content)


def assert_same_results(folder: Path, reference: Path) -> None:
    assert runs_of(folder) == runs_of(reference)
    summaries = [(at / "results/summary.json").read_bytes() for at in (folder, reference)]
    assert summaries[0] == summaries[1]
    weights = sorted(p.relative_to(reference) for p in reference.glob("runs/*/model.safetensors"))
    assert len(weights) == 2
    for path in weights:
        assert (folder / path).read_bytes() == (reference / path).read_bytes()


def test_ray_returns_errors_and_cancels_what_runs_when_interrupted(cluster, tmp_path):
    import ray

    failing = Job("failing", task_named, ("nothing",), tmp_path / "failing.log", lambda: True)
    endless = Job("endless", time.sleep, (600,), tmp_path / "endless.log", lambda: True)

    def watch():
        if failing.state == "failed" and endless.state == "running":
            raise KeyboardInterrupt

    with RayRunner("auto") as runner, pytest.raises(KeyboardInterrupt):
        run_jobs([failing, endless], runner, watch)
    assert 'error: no task "nothing"' in failing.message and failing.lost == 0
    for _ in range(600):
        if ray.available_resources().get("CPU") == 2:
            break
        time.sleep(0.1)
    assert ray.available_resources()["CPU"] == 2


def test_ray_refuses_what_no_node_has(cluster):
    with pytest.raises(UnseenError, match=r"has 1 CPUs and 4 GPUs for a run: .* 1 and 0; lower"):
        RayRunner(gpus=4)
    with pytest.raises(UnseenError, match=r"already uses the Ray cluster at .*, not 10.0.0.1:1"):
        RayRunner("10.0.0.1:1")


def test_ray_data_takes_batch_scorer_as_it_is(cluster, reference):
    import ray
    from your_own_task import load

    x = load(0.5, "test").tensors[0].numpy()[:100]
    run = reference / "runs/erm-default-seed0"
    options = {"task": "your_own_task:waves", "verdicts": False, "device": "cpu"}
    here = BatchScorer(run, **options)
    rows = ray.data.from_items([{"x": row, "number": i} for i, row in enumerate(x)])
    scored = rows.map_batches(
        BatchScorer,
        fn_constructor_args=(str(run),),
        fn_constructor_kwargs={**options, "keep": ["number"], "sums_by": "number"},
        batch_size=40,
        concurrency=1,
    ).take_all()
    scored.sort(key=lambda row: row["number"])
    assert [row["number"] for row in scored] == list(range(100))
    expected = here({"x": x})
    for name in ("prediction", "probability", "score"):
        found = np.array([row[name] for row in scored])
        np.testing.assert_allclose(found, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    merged = merge_sums(row["sums"] for row in scored)
    assert merged.n == 100
    whole = here.scorer.judge(here.scorer.observe(x))
    assert here.scorer.judge(merged).score == pytest.approx(whole.score, rel=1e-6)


def test_predict_on_ray_and_in_processes_equals_one_process(cluster, reference, tmp_path):
    run, task = reference / "runs/erm-default-seed0", ("--task", "your_own_task:waves")
    words = ("predict", run, *task, "--domain", "hall", "--part", 64, "--reject-rate", 0.1)
    places = {
        "here": (),
        "processes": ("--workers", 2),
        "ray": ("--on", "ray", "--address", "auto"),
    }
    results = {}
    for name, more in places.items():
        out = tmp_path / name / "predictions.csv"
        out.parent.mkdir()
        results[name] = unseen(*words, *more, "--out", out, "--json").json()
        assert results[name].pop("out") == str(out) and results[name]["n"] == 300
        assert [path.name for path in out.parent.iterdir() if path.suffix] == ["predictions.csv"]
    for name in ("processes", "ray"):
        assert results[name] == results["here"]
        files = [tmp_path / at / "predictions.csv" for at in (name, "here")]
        assert files[0].read_bytes() == files[1].read_bytes()


class LosingANode(RayRunner):
    """Removes a node of the cluster when a run on it has a checkpoint."""

    def __init__(self, cluster, node) -> None:
        super().__init__("auto")
        self.cluster, self.node, self.lost = cluster, node, []

    def ending(self, job):
        found = super().ending(job)
        if found is not None and found.code is None:
            self.lost.append(job.label)
        return found

    def wait(self, jobs, seconds):
        if self.node is not None and any(map(self.is_on_the_node, jobs)):
            self.cluster.remove_node(self.node, allow_graceful=False)
            self.node = None
        super().wait(jobs, 0.05)

    def is_on_the_node(self, job) -> bool:
        """Whether the run has a checkpoint and is trained by a worker of the node."""
        if job.state != "running" or not checkpoint_of(job).exists():
            return False
        raylet = self.node.all_processes["raylet"][0].process
        for worker in psutil.Process(raylet.pid).children():
            with contextlib.suppress(psutil.Error):
                if worker.cmdline()[:1] == [f"ray::{job.label}"]:
                    return True
        return False


def checkpoint_of(job: Job) -> Path:
    return job.log.with_suffix("") / "state.safetensors"


def test_ray_grid_finishes_with_equal_tables_after_a_node_is_lost(cluster, reference, tmp_path):
    grid = make_grid(tmp_path)
    with LosingANode(*cluster) as runner:
        result = run_grid(read_grid(grid), quiet=True, runner=runner)
        assert runner.node is None and len(runner.lost) == 1
    assert result["failed"] == {} and result["runs"] == result["wanted"] == 2
    assert_same_results(tmp_path, reference)
    again = unseen("bench", grid, "--on", "ray", "--address", "auto", "--json").json()
    assert again["runs"] == 2 and again["failed"] == {}


class Preempting(SlurmRunner):
    """Sends the first run the signal of Slurm before a time limit, once it has a checkpoint."""

    def __init__(self) -> None:
        super().__init__(cluster="local", workers=2)
        self.interrupted = None

    def wait(self, jobs, seconds):
        first = jobs[0] if jobs else None
        if self.interrupted is None and first is not None and checkpoint_of(first).exists():
            self.interrupted = first.handle
            signal_task(first.handle)
        super().wait(jobs, 0.05)


def signal_task(handle) -> None:
    """Signal the process of a job, a child of the process that stands for Slurm."""
    from submitit.local.local import LocalJobEnvironment

    for child in psutil.Process(int(handle.job_id)).children():
        child.send_signal(LocalJobEnvironment._usr_sig())


def test_submitit_grid_resumes_a_preempted_run_with_equal_tables(reference, tmp_path):
    pytest.importorskip("submitit")
    with Preempting() as runner:
        result = run_grid(read_grid(make_grid(tmp_path, more="")), quiet=True, runner=runner)
    assert result["failed"] == {} and result["runs"] == 1
    (ours,), (theirs, _) = runs_of(tmp_path), runs_of(reference)
    assert ours == theirs
    weights = "runs/erm-default-seed0/model.safetensors"
    assert (tmp_path / weights).read_bytes() == (reference / weights).read_bytes()
    assert "Requeued job" in runner.interrupted.stdout()


def test_options_of_another_runner_and_a_missing_slurm_are_errors(tmp_path, monkeypatch):
    grid = make_grid(tmp_path)
    wrong = unseen("bench", grid, "--address", "auto")
    assert wrong.returncode == 2 and "--address is for --on ray, not for --on local" in wrong.stderr
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = unseen("bench", grid, "--on", "slurm")
    assert missing.returncode == 2 and "the command sbatch is missing" in missing.stderr
    wrong = unseen("adapt-grid", grid, "--on", "slurm", "--sbatch", "account")
    assert wrong.returncode == 2
