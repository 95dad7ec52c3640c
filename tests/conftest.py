import os
import platform
from pathlib import Path

# One thread, also in processes that tests start: on small arrays more threads only wait for each
# other, and the cores are shared by the workers of pytest-xdist.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# Before torch is imported: the golden weights, and runs that earlier versions interrupted, have the
# rounding of AVX2. With AVX-512 sums round otherwise, and training drifts apart.
if platform.machine() == "x86_64":
    cpu = Path("/proc/cpuinfo")
    if cpu.exists() and "avx512" in cpu.read_text():
        os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
        os.environ.setdefault("MKL_ENABLE_INSTRUCTIONS", "AVX2")

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Use one thread: faster for small tensors, and the cores are shared."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def smaller_estimators():
    """Fit accuracy estimators to a third of the blends and draws, in every test.

    Runs are calibrated on 400 samples: all of the toy tasks, two fifths of mini_digits.
    """
    from quick import quick_calibration

    from unseen.detection import accuracy_points, null_accuracy

    with pytest.MonkeyPatch.context() as patch, quick_calibration(400):
        patch.setattr(accuracy_points, "BLENDS", 20)
        patch.setattr(null_accuracy, "RESAMPLES", 300)
        patch.setattr(null_accuracy, "SIMULATED", 100)
        yield


@pytest.fixture(scope="module")
def quick_estimators():
    """Calibrate runs and fit accuracy estimators to few samples: for tests of what uses them."""
    from quick import quick_estimates

    with quick_estimates():
        yield


@pytest.fixture(scope="session")
def report_folder(tmp_path_factory):
    """The report of saved runs that hold everything a report can show."""
    from saved_runs import everything

    from unseen.report.write import write_report

    root = tmp_path_factory.mktemp("report")
    write_report(everything(root), root / "out")
    return root / "out"
