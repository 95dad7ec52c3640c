"""Module paths and names of version 0.1: they import with a DeprecationWarning until 0.3."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

# Old module to new module, both below `unseen`. `unseen.fit` is the function of that name.
MODULES = {
    "contracts": "api",
    "sites": "nn.hooks",
    "noise": "functional.noise",
    "mixup": "functional.mixup",
    "meta": "functional.meta",
    "perturb": "nn.perturbed_forward",
    "embedding_head": "nn.heads",
    "uncertainty": "detection.source_statistics",
    "sigma_score": "detection.sigma",
    "sampled": "methods.sampled_passes",
    "scores": "detection.registry",
    "scores.score": "detection.detector",
    "scores.logits": "detection.logits",
    "scores.mahalanobis": "detection.mahalanobis",
    "scores.own": "detection.registry",
    "monitor": "detection.monitor",
    "accuracy_estimates": "detection.accuracy",
    "synthetic_shifts": "detection.synthetic_shifts",
    "metrics": "functional.metrics",
    "batches": "training.batches",
    "run": "training.run",
    "store": "training.checkpoint",
    "settings": "training.config",
    "machine": "training.machine",
    "progress": "training.progress",
    "curves": "training.loggers.tensorboard",
    "evidence": "training.sample_images",
    "exam": "experiments.evaluate",
    "accuracy_exam": "experiments.estimate_accuracy",
    "adapting": "experiments.adapt",
    "few_shot": "experiments.adapt_grid",
    "comparison": "experiments.compare_scores",
    "grid": "experiments.grid",
    "bench": "experiments.run_grid",
    "earlier": "experiments.published_runs",
    "publish": "report.write",
    "demo": "experiments.demo",
    "doctor": "cli.installation",
    "pictures": "experiments.segmentation_images",
    "adaptation.contract": "adaptation.base",
    "adaptation.fine_tune": "adaptation.fine_tuning",
    "augmentations.autoaugment": "augmentations.auto_augment",
    "augmentations.cutout": "augmentations.cut_out",
    "augmentations.flip_crop": "augmentations.flip_and_crop",
    "augmentations.randconv": "augmentations.random_convolution",
    "data.made_once": "data.cache",
    "data.pictures": "data.images",
    "data.root": "data.location",
    "data.stock": "data.catalog",
    "tasks.amazon_shifts": "tasks.tuning.amazon_shifts",
    "tasks.cifar_shifts": "tasks.tuning.cifar_shifts",
    "tasks.digits_shifts": "tasks.tuning.digits_shifts",
    "tasks.speech_shifts": "tasks.tuning.speech_shifts",
}

# "old module:old name" to "new module:new name", for what was renamed or went elsewhere.
NAMES = {
    "batches:loaded": "training.batches:load_split",
    "batches:picked": "training.batches:take",
    "batches:some_of": "training.batches:subsample",
    "metrics:share_met": "functional.metrics:accuracy",
    "metrics:confused": "functional.metrics:confusion_matrix",
    "settings:parse": "schema:parse_settings",
    "store:fill": "training.checkpoint:load_weights",
    "store:locked": "files:locked",
    "store:read_json": "files:read_json",
    "store:read_tensors": "nn.tensor_files:read_tensors",
    "store:write_atomically": "files:write_atomically",
    "store:write_json": "files:write_json",
    "store:write_tensors": "nn.tensor_files:write_tensors",
    "run:TRAINED_ON": "training.identity:TRAINED_ON",
    "run:checked_seed": "training.identity:check_seed",
    "run:commit_here": "training.identity:commit_here",
    "run:difference": "training.identity:difference",
    "run:identity": "training.identity:identity",
    "run:train": "training.train:train",
    "run:trained_on": "training.identity:trained_on",
    "progress:span": "training.progress:format_seconds",
    "progress:told": "training.progress:format_metrics",
    "uncertainty:SourceReference": "detection.source_statistics:SourceStatistics",
    "contracts:inputs": "nn.inputs:inputs",
    "contracts:images": "nn.inputs:images",
    "contracts:in_unit_range": "nn.inputs:in_unit_range",
    "contracts:check_targets": "nn.inputs:check_targets",
    "contracts:cross_entropy": "functional.losses:cross_entropy",
    "contracts:NO_STATISTICS": "detection.detector:NOT_CALIBRATED",
    "uncertainty:relative_deviation": "functional.scores:relative_deviation",
    "uncertainty:entropy": "functional.scores:entropy",
    "uncertainty:bootstrap_interval": "functional.bootstrap:bootstrap_interval",
    "uncertainty:resampled_scores": "functional.bootstrap:resampled_scores",
    "uncertainty:resampled_means": "functional.bootstrap:resampled_means",
    "uncertainty:TransportReader": "detection.embedding_shift_predictor:EmbeddingShiftPredictor",
    "sampled:moments": "functional.scores:running_moments",
    "sampled:predictive_variance": "functional.scores:predictive_variance",
    "scores:SCORES": "detection.registry:DETECTORS",
    "scores:scores_of": "experiments.compare_scores:detectors_of",
    "scores:Score": "detection.detector:Detector",
    "scores:Look": "detection.detector:Look",
    "scores:LogitScore": "detection.logits:LogitDetector",
    "scores.score:Score": "detection.detector:Detector",
    "scores.logits:LogitScore": "detection.logits:LogitDetector",
    "scores.logits:MaxSoftmax": "detection.max_softmax:MaxSoftmax",
    "scores.logits:Entropy": "detection.entropy:Entropy",
    "scores.logits:Energy": "detection.energy:Energy",
    "scores.logits:TotalVariance": "detection.total_variance:TotalVariance",
    "scores.logits:mean_over_pixels": "functional.scores:mean_over_pixels",
    "scores.mahalanobis:nearest_squared": "functional.scores:nearest_squared_distance",
    "scores.own:Sigma": "detection.sigma:SigmaDetector",
    "scores.own:BayesByBackprop": "detection.predictive_variance:PredictiveVariance",
    "scores.own:MonteCarloDropout": "detection.predictive_variance:PredictiveVariance",
    "accuracy_estimates:average_confidence": "functional.confidence:average_confidence",
    "accuracy_estimates:certainty": "functional.confidence:negative_entropy",
    "accuracy_estimates:atc_threshold": "functional.confidence:atc_threshold",
    "accuracy_estimates:atc": "functional.confidence:average_thresholded_confidence",
    "synthetic_shifts:noisier": "detection.synthetic_shifts:add_noise",
    "synthetic_shifts:specked": "detection.synthetic_shifts:salt_and_pepper",
    "synthetic_shifts:blurred": "detection.synthetic_shifts:blur",
    "synthetic_shifts:coarser": "detection.synthetic_shifts:pixelate",
    "synthetic_shifts:flatter": "detection.synthetic_shifts:reduce_contrast",
    "synthetic_shifts:darker": "detection.synthetic_shifts:darken",
    "synthetic_shifts:brighter": "detection.synthetic_shifts:brighten",
    "synthetic_shifts:inverted": "detection.synthetic_shifts:invert",
    "synthetic_shifts:on_texture": "detection.synthetic_shifts:blend_texture",
    "synthetic_shifts:hidden": "detection.synthetic_shifts:occlude",
    "synthetic_shifts:turned": "detection.synthetic_shifts:rotate",
    "synthetic_shifts:zoomed": "detection.synthetic_shifts:zoom",
    "synthetic_shifts:moved": "detection.synthetic_shifts:translate",
    "synthetic_shifts:dropped": "detection.synthetic_shifts:drop_entries",
    "synthetic_shifts:columns_dropped": "detection.synthetic_shifts:drop_features",
    "synthetic_shifts:exchanged": "detection.synthetic_shifts:exchange_entries",
    "synthetic_shifts:scattered": "detection.synthetic_shifts:add_relative_noise",
    "synthetic_shifts:offset": "detection.synthetic_shifts:add_offset",
    "synthetic_shifts:scaled": "detection.synthetic_shifts:rescale",
    "synthetic_shifts:NUMBERS": "detection.synthetic_shifts:NUMERIC",
    "metrics:Measured": "training.evaluation:Evaluation",
    "metrics:confusion_of": "training.evaluation:confusion_over",
    "metrics:measure": "training.evaluation:evaluate_metric",
    "exam:BOUND": "experiments.evaluate:SUBSAMPLE_METRIC",
    "accuracy_exam:examine": "experiments.estimate_accuracy:estimate_run",
    "accuracy_exam:spread": "report.tables.estimates:show_spread",
    "few_shot:Way": "experiments.adapt_grid:AdaptationSpec",
    "few_shot:FewShot": "experiments.adapt_grid:AdaptationGrid",
    "few_shot:read_few_shot": "experiments.adapt_grid:read_adaptation_grid",
    "few_shot:Adapting": "experiments.adapt_grid:PlannedAdaptation",
    "few_shot:adaptings_of": "experiments.adapt_grid:plan_adaptations",
    "few_shot:run_few_shot": "experiments.run_adapt_grid:run_adaptation_grid",
    "few_shot:write_few_shot": "experiments.run_adapt_grid:write_tables",
    "adapting:Ground": "experiments.adapt:AdaptationData",
    "adapting:Drawn": "experiments.adapt:AdaptedModel",
    "adapting:one_draw": "experiments.adapt:adapt_once",
    "adapting:held_back": "_deprecated:held_back",
    "adapting:blended": "experiments.adapt:interpolate",
    "grid:Job": "experiments.grid:PlannedRun",
    "grid:jobs_of": "experiments.grid:plan_runs",
    "earlier:published_runs": "experiments.published_runs:read_published_runs",
    "earlier:earlier_run": "experiments.published_runs:find_published",
    "earlier:why_not": "experiments.published_runs:find_mismatches",
    "earlier:remarks_on": "experiments.published_runs:describe_mismatches",
    "earlier:must_keep": "experiments.published_runs:check_nothing_lost",
    "pictures:pictures": "experiments.segmentation_images:draw_predictions",
    "pictures:names_of": "experiments.segmentation_images:distinct_names",
    "doctor:packages": "cli.installation:check_packages",
    "doctor:bystanders": "cli.installation:check_companions",
    "doctor:data": "cli.installation:check_data",
    "doctor:places": "cli.installation:check_folders",
    "doctor:threads": "cli.installation:check_threads",
    "doctor:python": "cli.installation:check_python",
    "doctor:command": "cli.installation:check_command",
    "doctor:devices": "cli.installation:check_devices",
    "doctor:torch_itself": "cli.installation:check_torch",
    "noise:GaussianHead": "nn.heads:GaussianHead",
    "noise:Draws": "nn.random:Draws",
    "noise:fresh_seeds": "nn.random:fresh_seeds",
    "noise:add_noise": "nn.fused_noise:add_noise",
    "noise:laid_out": "nn.random:canonical_layout",
    "mixup:MixupHead": "nn.heads:MixupHead",
    "mixup:pool": "functional.pooling:pool",
    "mixup:draw_mixing": "nn.random:draw_mixing",
    "mixup:lottery": "functional.mixup:relaxed_bernoulli",
    "perturb:Perturbed": "nn.perturbed_forward:PerturbedOutput",
    "perturb:PerturbedPass": "nn.perturbed_forward:PerturbedForward",
    "embedding_head:embedded": "nn.heads:embed",
    "sigma_score:SigmaScore": "detection.sigma:SigmaDetector",
    "store:save_reference": "training.checkpoint:save_detector",
    "augmentations.randconv:deformed_convolution": (
        "augmentations.random_convolution:deformable_convolution"
    ),
    "data.made_once:made_once": "data.cache:cached_arrays",
    "data.made_once:stamps": "data.cache:file_stamps",
    "data.pictures:Pictures": "data.images:ByteImages",
    "data.stock:enough": "data.catalog:usable_variants",
    "tasks.amazon_shifts:amazon_shifts": "tasks.tuning.amazon_shifts:task",
    "tasks.cifar_shifts:cifar_shifts": "tasks.tuning.cifar_shifts:task",
    "tasks.digits_shifts:digits_shifts": "tasks.tuning.digits_shifts:task",
    "tasks.speech_shifts:speech_shifts": "tasks.tuning.speech_shifts:task",
    "demo:run": "experiments.demo:run_demo",
}


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    loaded = importlib.import_module(f"unseen.{module}")
    return getattr(loaded, name) if name else loaded


class OldModule(ModuleType):
    """Stand-in for a module of version 0.1; looks its names up where they are now."""

    def __getattr__(self, name: str) -> Any:
        old = self.__name__.removeprefix("unseen.")
        if name.startswith("__"):
            raise AttributeError(name)
        if f"{old}.{name}" in MODULES:
            return importlib.import_module(f"unseen.{old}.{name}")
        try:
            return _load(NAMES.get(f"{old}:{name}", f"{MODULES[old]}:{name}"))
        except AttributeError:
            raise AttributeError(
                f"{self.__name__} is now unseen.{MODULES[old]}, which has no {name}"
            ) from None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function of the same name, which this module hides once it is imported."""
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)

    def __dir__(self) -> list[str]:
        return dir(_load(MODULES[self.__name__.removeprefix("unseen.")]))


class OldModuleFinder(MetaPathFinder, Loader):
    """Imports the stand-ins; comes after the finders of real modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, old = fullname.partition(".")
        if package != "unseen" or old not in MODULES:
            return None
        has_children = any(name.startswith(f"{old}.") for name in MODULES)
        return spec_from_loader(fullname, self, is_package=has_children)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return OldModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        new = f"unseen.{MODULES[module.__name__.removeprefix('unseen.')]}"
        warnings.warn(
            f"{module.__name__} is now {new}; the old path will be removed in version 0.3",
            DeprecationWarning,
            stacklevel=2,
        )


def held_back(start: Any, adapted: Any, worth: Any, bound: float) -> Any:
    """Call `limit_source_loss`, whose argument `worth` is now called `metric`."""
    return _load("experiments.adapt:limit_source_loss")(start, adapted, worth, bound)


def module_attribute(package: str, name: str) -> Any:
    """Return the old submodule `name`: `import unseen` used to load them all."""
    if name in MODULES:
        return importlib.import_module(f"{package}.{name}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


if not any(isinstance(finder, OldModuleFinder) for finder in sys.meta_path):
    sys.meta_path.append(OldModuleFinder())
