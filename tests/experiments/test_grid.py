"""The contents of a grid file: errors name the place, variants have folders of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from unseen import UnseenError
from unseen.experiments.adapt_grid import AdaptationGridFile
from unseen.experiments.grid import GridFile, plan_runs, read_grid, with_seeds
from unseen.schema import read_toml, validate

GRIDS = Path(__file__).parents[2] / "grids"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('task = "your_own_task:waves"', ""), "grid.toml: task is missing"),
        (('method = "mixup"', 'method = "mixdown"'), 'row mixdown: no method "mixdown"'),
        (("alpha = 0.1", "alfa = 0.1"), "row mixup, sharp: .*alfa"),
        (("alpha = 0.1", 'alpha = "much"'), "alpha must be a number"),
        (('setting = "sharp"\n', ""), "two rows are called mixup default"),
        (("[set]", "[sets]"), "unknown setting sets; known settings: task, variants"),
        (
            (
                'setting = "sharp"',
                'setting = "def/ault"\n[[row]]\nmethod = "mixup"\nsetting = "def ault"',
            ),
            "would share the folder",
        ),
        (("alpha = 0.1", "alpha = -1.0"), "row mixup, sharp: alpha must be a number above 0"),
        (("set = { alpha = 0.1 }", "set = 5"), r"row\[2\].set must be a table"),
        (("street = 0.7", "street = 70"), r"row\[0\].paper.street must be at most 1.*, not 70"),
        (("[set]", '[averages]\naverage = ["hall"]\n[set]'), '"average" is over all domains'),
        (("[set]", "[averages]\nx = 5\n[set]"), "averages.x must be a list, not 5"),
        (("seeds = [0, 1]", "seeds = [1, 1]"), "seeds must be a list of different values"),
        (("seeds = [0, 1]", "seeds = [-1]"), r"seeds\[0\] must be at least 0, not -1"),
        (("seeds = [0, 1]", "seeds = [0, 1"), "is not valid TOML"),
        (("seeds = [0, 1]", "samples = 0"), "samples must be at least 1"),
    ],
)
def test_wrong_grid_is_refused_before_anything_runs(grid_file, tmp_path, change, message):
    text = grid_file.read_text()
    assert change[0] in text
    grid_file.write_text(text.replace(*change))
    with pytest.raises(UnseenError, match=message):
        read_grid(grid_file)
    assert not (tmp_path / "runs").exists()


def test_text_none_stands_for_none(grid_file):
    text = grid_file.read_text().replace("alpha = 0.1", 'augment = "none"')
    grid_file.write_text(text)
    assert read_grid(grid_file).rows[2].set == {"augment": None}


def test_with_seeds_replaces_the_seeds(grid_file):
    grid = with_seeds(read_grid(grid_file), [5])
    assert {run.seed for run in plan_runs(grid)} == {5} and grid.command.endswith("--seeds 5")
    with pytest.raises(UnseenError, match="--seeds: seeds must be a list of different values"):
        with_seeds(grid, [1, 1])


def test_variants_have_folders_of_their_own(tmp_path):
    grid = 'task = "amazon_reviews"\nvariants = {}\nseeds = [3]\n[[row]]\nmethod = "erm"\n'
    path = tmp_path / "reviews.toml"
    path.write_text(grid.format('["books", "dvd"]'))
    runs = plan_runs(read_grid(path))
    assert [(run.task, run.folder.as_posix(), run.label) for run in runs] == [
        ("amazon_reviews/books", "runs/reviews/books/erm-default-seed3", "books erm seed 3"),
        ("amazon_reviews/dvd", "runs/reviews/dvd/erm-default-seed3", "dvd erm seed 3"),
    ]
    assert runs[0].domains == ("books->dvd", "books->electronics", "books->kitchen")
    path.write_text(grid.format('["toys"]'))
    with pytest.raises(UnseenError, match='has no variant "toys"; it has: books, dvd'):
        read_grid(path)
    path.write_text(grid.format('"books"'))
    with pytest.raises(UnseenError, match="variants must be a list"):
        read_grid(path)


@pytest.mark.parametrize("path", sorted(GRIDS.glob("*.toml")), ids=lambda path: path.stem)
def test_grid_of_the_repository_matches_its_schema(path):
    content = read_toml(path)
    validate(AdaptationGridFile if "start" in content else GridFile, content, str(path))
