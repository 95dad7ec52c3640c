"""Run folders and results as the commands write them, without any training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save

LOOP = {
    "steps": 80,
    "batch_size": 32,
    "augment": None,
    "lr_schedule": "none",
    "log_every": 10,
    "checkpoint_every": 100,
    "num_checkpoints": 4,
}
GUIDED = {
    "sites": ["conv1"], "embedding": "fc2", "lr": 1e-4, "draws": 5, "chunk": None, "meta": "first",
    "noise": {"kind": "learned", "scale": 2.0, "minimize": True},
    "adversary": {"rounds": 10, "beta": 1.0},
    "mixup": {"kind": "learned", "weight": 0.01, "rho": 0.9},
}  # fmt: skip
FLAT_LOOP = {
    "steps": 80, "batch": 32, "augment": None, "decay": "none", "log_every": 10,
    "checkpoint_every": 100, "keep": 4,
}  # fmt: skip
FLAT_GUIDED = {
    "sites": ["conv1"], "embedding": "fc2", "lr": 1e-4, "draws": 5, "chunk": None, "meta": True,
    "order": 1, "perturbation": "full", "noise_scale": 2.0, "minimize_heads": True,
    "adversarial": True, "ascent_rounds": 10, "beta": 1.0, "mixup": "learnable",
    "mixed_weight": 0.01, "rho": 0.9,
}  # fmt: skip
SETTINGS = {"erm": {"lr": 1e-4}, "uncertainty_guided": GUIDED}
SNAPSHOTS = (1, 20, 40, 60, 80)


def write_arrays(path: Path, **arrays) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        save({name.replace("__", "/"): np.ascontiguousarray(a) for name, a in arrays.items()})
    )


def merge(settings: dict, changes: dict) -> dict:
    """Return settings with changes; a group of settings is changed field by field."""
    merged = dict(settings)
    for name, value in changes.items():
        group = isinstance(value, dict) and isinstance(settings.get(name), dict)
        merged[name] = {**settings[name], **value} if group else value
    return merged


def saved_run(
    folder: Path, method="erm", seed=0, *, task="digits", variant="default", source="mnist",
    figures=None, metric="accuracy", class_names=(), pictures=True, keep=True, evaluated=True,
    scored=False, judged=False, **settings,
) -> Path:  # fmt: skip
    """Write one finished run; `figures` has the metric of the last step by domain."""
    figures = {"svhn": 0.3, "mnist_m": 0.5, "usps": 0.8} if figures is None else figures
    text = f"{folder.parent.name}/{folder.name}{task}{variant}"
    name = f"{sum(ord(c) * 31**i for i, c in enumerate(text)) % 16**8:08x}"
    config = {
        "format": 2, "run": name, "task": task, "variant": variant, "method": method,
        "preset": "fast", "seed": seed, "loop": LOOP, "settings": merge(SETTINGS[method], settings),
        "model": {}, "task_word": task, "class_names": list(class_names),
        "command": f"unseen train {task} --seed {seed}", "device": "cpu", "threads": 1,
        "commit": "c0ffee", "versions": {"torch": "2.13.0"}, "peak_memory": 512_000_000,
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    rows = []
    for step in range(10, 81, 10):
        logged = {"loss": 1 / step, "seconds_per_step": 0.5}
        if method == "uncertainty_guided":
            logged |= {
                "transport": step / 4,
                "sigma/conv1": 0.5 + step / 400,
                "sigma/conv2": 0.4,
                "lambda": 0.5,
                "a": 1.0,
                "b": 2.0,
            }
            logged["tau"] = 0.3
        rows += [(step, source, "train", key, value) for key, value in logged.items()]
    for step in (20, 40, 60, 80) if keep else (80,):
        rows.append((step, source, "val", metric, 0.9 + step / 1000))
        if not evaluated:
            continue
        for domain, value in {source: 0.97, **figures}.items():
            rows.append((step, domain, "test", metric, value - (80 - step) / 1000))
            if scored and step == 80:
                rows.append((step, domain, "score", "domain_score", 1 - value))
                rows.append((step, domain, "score", "score_threshold", 0.1))
    for domain, value in {source: 0.97, **figures}.items() if judged else ():
        judgement = {
            "predicted_accuracy": value - 0.02,
            "predicted_low": value - 0.1,
            "predicted_high": value + 0.03,
            "source_accuracy": 0.96,
            "p_value": 0.4 if domain == source else 0.0005,
            "score": 1 - value,
            "threshold": 0.1,
            "verdict_ok" if domain == source else "verdict_failing": 1.0,
        }
        rows += [(80, domain, "verdict", key, number) for key, number in judgement.items()]
    lines = [
        dict(zip(("run", "step", "domain", "split", "metric", "value"), (name, *row), strict=True))
        for row in rows
    ]
    (folder / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "done").write_bytes(b"")
    if judged:
        save_reliability(folder, [source, *figures])
    if pictures:
        save_pictures(
            folder,
            method,
            [source, *figures],
            metric,
            max(3, len(class_names)),
            "noise" not in settings,
        )
    return folder


def save_reliability(folder: Path, domains) -> None:
    """Write bins of an overconfident model whose calibrated confidence is right."""
    centres = (np.arange(10) + 0.5) / 10
    count = np.array([0, 0, 0, 5, 10, 20, 30, 40, 80, 200.0])
    bins = {"before": centres**2, "after": centres}
    arrays = {
        f"{kind}/{domain}": np.stack([count, centres, accuracy]) * (count > 0)
        for domain in domains
        for kind, accuracy in bins.items()
    }
    write_arrays(folder / "figures/reliability.safetensors", **arrays)


def save_pictures(
    folder: Path, method: str, domains, metric: str, classes: int, learned: bool
) -> None:
    random = np.random.default_rng(0)
    strokes = np.zeros((8, 28, 28), np.float32)
    strokes[:, 6:22, 12:16] = 1
    write_arrays(folder / "figures/inputs.safetensors", x=(strokes[:, None] * 255).astype(np.uint8))
    for step in SNAPSHOTS:
        labels = np.arange(24) % 3
        z = (labels[:, None] == np.arange(8)) * step / 10 + random.normal(size=(24, 8)) * 0.3
        arrays = {"embedding": z.astype(np.float32), "labels": labels}
        if method == "uncertainty_guided":
            lam = random.uniform(size=(24, 1)).astype(np.float32)
            hot = (labels[:, None] == np.arange(3)).astype(np.float32)
            arrays |= {
                "embedding_plus": (z + step / 20).astype(np.float32),
                "shift": strokes * step / 80 * learned + 0.3,
                "y_plus": lam * hot + (1 - lam) * (0.9 * hot + 0.05 * (1 - hot)),
            }  # fmt: skip
        write_arrays(folder / f"figures/step_{step:06d}.safetensors", **arrays)
    exam = {}
    for domain in domains:
        counts = np.full((classes, classes), 3) + 40 * np.eye(classes, dtype=np.int64)
        exam[f"confusion/{domain}"] = counts.astype(np.int64)
        side = (3, 24, 32) if metric == "miou" else (3,)
        exam[f"x/{domain}"] = random.integers(
            0, 255, (3, 3, 24, 32) if metric == "miou" else (3, 1, 28, 28)
        ).astype(np.uint8)
        exam[f"y/{domain}"] = np.full(side, 1, np.int16)
        exam[f"guess/{domain}"] = np.full(side, 2, np.int16)
    write_arrays(folder / "figures/exam.safetensors", **exam)


def scores(folder: Path, bayes: bool = True) -> Path:
    """scores.json as `unseen compare-scores` writes it."""
    domains = {"mnist": 0.97, "svhn": 0.3, "mnist_m": 0.5, "usps": 0.8}

    def found(factor):
        of_domain = {
            d: {"score": factor * (1 - v), "low": 0.0, "high": 1.0, "auroc": 0.9, "fpr95": 0.4}
            for d, v in domains.items()
        }
        return {"ms_per_1000": 12.0, "cost_ratio": 1.2, "domains": of_domain}

    runs = [
        {
            "method": "uncertainty_guided",
            "seed": 0,
            "values": domains,
            "scores": {"uncertainty_guided": found(0.5)},
        }
    ]
    runs += (
        [{"method": "bnn", "seed": 0, "values": domains, "scores": {"bnn": found(0.2)}}]
        if bayes
        else []
    )
    facts = {
        "task": "digits", "variant": "default", "metric": "accuracy", "source": "mnist",
        "domains": ["svhn", "mnist_m", "usps"],
        "samples": 100, "seed": 0, "device": "cpu", "threads": 1, "runs": runs,
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "scores.json").write_text(json.dumps({"tasks": [facts]}))
    return folder


def few_shot(folder: Path) -> Path:
    """summary.json and runs.json as `unseen adapt-grid` writes them."""
    row = {
        "task": "digit_pairs",
        "variant": "usps_to_mnist",
        "method": "fada",
        "setting": "7-shot",
        "selection": "last",
    }
    rows = [{**row, "domain": "usps->mnist", "metric": m, "mean": v, "std": 0.01, "seeds": [0, 1]}
            for m, v in (("accuracy", 0.9), ("source_accuracy", 0.95))]  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(rows))
    (folder / "runs.json").write_text(
        json.dumps({"paper": {"fada": {"7-shot": {"usps->mnist": 0.915}}}, "runs": []})
    )
    return folder


def everything(root: Path) -> list[Path]:
    """Write runs of several tasks with all that a report can show, and results."""
    runs = root / "runs"
    for seed in (0, 1):
        shift = 0.01 * seed
        saved_run(
            runs / f"erm-{seed}",
            "erm",
            seed,
            scored=True,
            figures={"svhn": 0.25 + shift, "mnist_m": 0.45, "usps": 0.78},
        )
        better = {"svhn": 0.40 + shift, "mnist_m": 0.60 - shift, "usps": 0.79}
        saved_run(runs / f"guided-{seed}", "uncertainty_guided", seed, figures=better, judged=True)
        worse = {d: v - 0.08 for d, v in better.items()}
        saved_run(
            runs / f"gaussian-{seed}",
            "uncertainty_guided",
            seed,
            figures=worse,
            noise={"kind": "random_gaussian"},
        )
        saved_run(runs / f"no_meta-{seed}", "uncertainty_guided", seed, figures=worse, meta=None)
        for draws in (1, 10):
            figures = {d: v - 0.05 / draws for d, v in better.items()}
            saved_run(
                runs / f"draws{draws}-{seed}",
                "uncertainty_guided",
                seed,
                figures=figures,
                draws=draws,
            )
        for beta in (0.1, 10.0):
            saved_run(
                runs / f"beta{beta}-{seed}",
                "uncertainty_guided",
                seed,
                figures=worse,
                adversary={"beta": beta},
            )
    names = ("gaussian_noise", "fog", "snow", "pixelate")
    graded = {
        f"{c}/{s}": 0.9 - 0.1 * s - 0.02 * i for i, c in enumerate(names) for s in (1, 2, 3, 4, 5)
    }
    for i, method in enumerate(("erm", "uncertainty_guided")):
        saved_run(runs / f"cifar-{method}", method, task="cifar10_c", variant="allconv",
                  source="cifar10", pictures=False,
                  figures={d: v + 0.05 * i for d, v in graded.items()})  # fmt: skip
    saved_run(
        runs / "streets", "uncertainty_guided", task="driving", variant="camvid_day", source="day",
        metric="miou", figures={"dusk": 0.31}, class_names=("sky", "road", "person"), mixup=None,
    )  # fmt: skip
    return [runs, scores(root / "scores"), few_shot(root / "few_shot")]
