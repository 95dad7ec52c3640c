"""Commands by their names of version 0.1, to be removed in 0.3."""

from __future__ import annotations

from unseen.cli.adapt_grid import adapt_grid
from unseen.cli.compare_scores import compare_scores
from unseen.cli.messages import deprecated
from unseen.cli.segmentation_images import segmentation_images
from unseen.cli.update_readme import update_readme

few_shot = deprecated(adapt_grid, "few-shot", "adapt-grid")
pictures = deprecated(segmentation_images, "pictures", "segmentation-images")
results = deprecated(update_readme, "results", "update-readme")
uncertainty = deprecated(compare_scores, "uncertainty", "compare-scores")
