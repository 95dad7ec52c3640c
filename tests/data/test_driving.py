"""Street scenes: reading, splits, methods on label maps, images of predictions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.api import Batch
from unseen.data import catalog
from unseen.data import driving as data
from unseen.data.location import VARIABLE
from unseen.errors import UnseenError
from unseen.experiments.segmentation_images import draw_predictions, evenly_spaced
from unseen.functional.mixup import mixed_loss
from unseen.methods import METHODS, method_named
from unseen.report.figures.segmentation import COLORS, class_colors, colorize, draw_side_by_side
from unseen.tasks import driving
from unseen.tasks.driving import COMMON, FRAMES, IGNORE, SYNTHIA, VARIANTS
from unseen.training.config import resolve
from unseen.training.run import Run
from unseen.training.train import train

SKY, POLE, ROAD = 0, 2, 3
LOOKUP = {
    "camvid": [*range(10), 255],
    "carla_clear23": [255, 1, 7, 255, 9, 2, 3, 3, 4, 5, 8, 1, 6, 0],
}
CLASSES = {"ignore_id": 255, "common10": {"names": list(data.CLASSES), "lookup": LOOKUP}}


def write_frame(folder: Path, name: str, label: np.ndarray, grey: int = 128) -> None:
    for place in ("images", "labels"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((*label.shape, 3), grey, np.uint8)).save(
        folder / f"images/{name}.jpg", quality=95
    )
    Image.fromarray(label.astype(np.uint8)).save(folder / f"labels/{name}.png")


def street(top: int = SKY, bottom: int = ROAD, size: tuple[int, int] = (240, 180)) -> np.ndarray:
    label = np.full((size[1], size[0]), top)
    label[size[1] // 2 :] = bottom
    label[:, :10] = IGNORE
    return label


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """Write ten frames of each day drive, four at dusk, ten of CARLA; grey encodes the index."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    folder = tmp_path / "driving"
    for drive in (*data.SEQUENCES["day"], *data.SEQUENCES["clear"]):
        for number in range(10):
            write_frame(
                folder / drive,
                f"{number:05d}",
                street(*((13, 7) if "carla" in drive else (SKY, ROAD))),
                20 * number,
            )
    for number in range(4):
        write_frame(folder / data.SEQUENCES["dusk"][0], f"{number:05d}", street(), grey=10)
    (folder / "classes.json").write_text(json.dumps(CLASSES))
    return tmp_path


def numbers_in(x: torch.Tensor) -> list[int]:
    return [round(float(image.float().mean()) / 20) for image in x]


# ---- pixels and classes


def test_a_domain_is_all_its_drives_one_after_the_other(root):
    x, y = data.load_scenes("day")
    assert (
        x.shape == (30, 3, 90, 120)
        and y.shape == (30, 90, 120)
        and x.dtype == y.dtype == torch.uint8
    )
    assert numbers_in(x) == 3 * list(range(10))
    assert (
        (y[:, :45, 5:] == SKY).all()
        and (y[:, 45:, 5:] == ROAD).all()
        and (y[:, :, :5] == IGNORE).all()
    )


def test_each_data_set_has_its_own_class_numbers(root):
    drive = root / "driving/carla/clear"
    native = np.repeat(np.array([[11, 12, 6, 0, 255]], np.uint8), 5, axis=0)
    write_frame(drive, "00000", native)
    assert data.read_label(
        data.Frame(drive, drive / "labels/00000.png"), data.class_lookup("clear"), (5, 5)
    )[0].tolist() == [
        1,
        6,
        3,
        IGNORE,
        IGNORE,
    ]
    assert data.class_lookup("day")[[9, 10, 255]].tolist() == [9, IGNORE, IGNORE], (
        "bicyclists are no common class"
    )
    assert data.load_scenes("clear")[1][1, 0, 5:].unique().tolist() == [SKY]


def test_without_a_table_of_ones_own_camvids_and_carlas_numbers_are_known(root):
    (root / "driving/classes.json").unlink()
    assert data.load_scenes("clear")[1][0, :, 5:].unique().tolist() == [SKY, ROAD]
    assert data.class_lookup("dusk")[[0, 9, 10, 11, 255]].tolist() == [
        SKY,
        9,
        IGNORE,
        IGNORE,
        IGNORE,
    ]
    assert data.class_lookup("clear")[[4, 18, 22]].tolist() == [
        COMMON.index(name) for name in ("person", "sign", "vegetation")
    ]


def test_images_shrink_by_the_mean_and_label_maps_by_picking(tmp_path):
    chess = np.indices((180, 240)).sum(0) % 2
    Image.fromarray((chess * 200).astype(np.uint8)).convert("RGB").save(tmp_path / "image.png")
    Image.fromarray((chess * 9).astype(np.uint8)).save(tmp_path / "label.png")
    assert (data.read_image(tmp_path / "image.png", (120, 90)) == 100).all()
    table = np.arange(256, dtype=np.uint8)
    small = data.read_label(
        data.Frame(tmp_path / "image.png", tmp_path / "label.png"), table, (120, 90)
    )
    assert small.shape == (90, 120) and set(np.unique(small)) <= {0, 9}, (
        "a mean of sky and person would be a road"
    )


def test_scenes_are_floats_and_class_numbers(root):
    x, y = driving.task().source.load("train")[torch.tensor([17, 0])]
    assert (
        x.dtype == torch.float32
        and x.min() >= 0
        and x.max() <= 1
        and y.dtype == torch.int64
        and y.shape == (2, 90, 120)
    )
    assert set(y.unique().tolist()) == {SKY, ROAD, IGNORE}
    x, y = driving.task().source.load("train")[3]
    assert x.shape == (3, 90, 120) and y.shape == (90, 120)


# ---- what is held out


def test_a_split_is_one_stretch_of_every_drive():
    parts = {
        split: list(data.split_drive(range(101), split, 0.6)) for split in ("train", "val", "test")
    }
    assert parts["train"] + parts["val"] + parts["test"] == list(range(101))
    assert [len(p) for p in parts.values()] == [61, 20, 20]


def test_source_splits_share_no_frame_and_come_from_every_drive(root):
    task = driving.task()
    numbers = {
        split: numbers_in(task.source.load(split).tensors[0]) for split in ("train", "val", "test")
    }
    assert numbers == {"train": 3 * [0, 1, 2, 3, 4, 5], "val": 3 * [6, 7], "test": 3 * [8, 9]}
    assert len(task.domain("dusk").load("test")) == 4


def test_unknown_splits_are_named(root):
    with pytest.raises(UnseenError, match='no split "validation"; it has: train, val, test'):
        driving.task().source.load("validation")
    with pytest.raises(UnseenError, match='dusk of driving has no split "train"; it has: test'):
        driving.task().domain("dusk").load("train")


# ---- the task


def test_variants_are_the_protocols(tmp_path, monkeypatch):
    monkeypatch.setenv(
        VARIABLE, str(tmp_path / "nothing here")
    )  # a task is made without reading anything
    made = {variant: driving.task(variant) for variant in VARIANTS}
    assert driving.task().variant == VARIANTS[0] == "camvid_day"
    domains = {
        v: (t.source.name, *(d.name for d in t.targets))
        for v, t in made.items()
        if not v.startswith("synthia")
    }
    assert domains == {
        "camvid_day": ("day", "dusk"),
        "carla_clear": ("clear", "day", "dusk"),
        "camvid_day_large": ("day", "dusk"),
    }
    assert all((t.variant, t.metric, t.ignore_label) == (v, "miou", 255) for v, t in made.items())
    assert made["carla_clear"].class_names == data.CLASSES == COMMON and IGNORE == data.IGNORE
    with pytest.raises(
        UnseenError,
        match='no variant "kitti"; it has: camvid_day, carla_clear, camvid_day_large, synthia_dawn',
    ):
        driving.task("kitti")


@pytest.mark.parametrize("preset", ["fast", "paper"])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_takes_the_presets(method, preset):
    for variant in VARIANTS:
        task = driving.task(variant)
        chosen = resolve(task, method_named(method), preset, {})
        assert (
            chosen.method["ignore_label"] == 255
            and chosen.method["embedding"] == "hidden"
            and chosen.loop.batch_size == 8
        )
        wanted = {"fast": {"depth": 18, "width": 0.5}, "paper": {"depth": 50, "width": 1.0}}[preset]
        skips = preset == "fast" and variant == "camvid_day_large"
        assert chosen.model == {**wanted, "pretrained": "", "skips": skips}
        if preset == "paper":
            assert chosen.loop.steps == 50 * (FRAMES[variant] // 8) and chosen.method["lr"] == 1e-4


def test_site_and_embedding_are_the_papers(root):
    task = driving.task()
    model = task.model(depth=50, width=0.125)
    assert model.get_submodule(task.sites[0]).kernel_size == (7, 7) and len(task.sites) == 1
    embedding = task.model().get_submodule(task.embedding)
    assert (embedding.kernel_size, embedding.out_channels) == ((3, 3), 512)


# ---- learning a class for every pixel


def tiny_batch(seed: int = 0) -> Batch:
    """Images whose label can be seen, a quarter of it without one."""
    generator = torch.Generator().manual_seed(seed)
    y = (
        torch.randint(0, 10, (4, 3, 4), generator=generator)
        .repeat_interleave(16, 1)
        .repeat_interleave(16, 2)
    )
    x = (y[:, None] / 10).expand(-1, 3, -1, -1) + 0.02 * torch.rand(
        4, 3, 48, 64, generator=generator
    )
    y[:, :, :16] = IGNORE
    return Batch((x.clamp(0, 1),), y)


SHORT = {
    "erm": {},
    "gud": {"every": 1, "capacity": 4, "ascent_steps": 2},
    "m_ada": {"every": 1, "capacity": 4, "ascent_steps": 2},
    "uncertainty_guided": {
        "warmup": 0,
        "adversary": {"rounds": 1, "steps": 2},
        "mixup": {"weight": 1.0},
    },
}


@pytest.mark.parametrize("method", SHORT)
def test_methods_learn_from_label_maps_and_never_from_pixels_without_a_label(method):
    kind, task, batch = method_named(method), driving.task(), tiny_batch()
    chosen = resolve(task, kind, "fast", {"width": 0.125, **SHORT[method]})
    torch.manual_seed(0)
    net = kind(task.model(**chosen.model), **chosen.method).train()
    start, slopes = net.model.body.conv1.weight.detach().clone(), []

    def watch(module, args, logits) -> None:
        if logits.requires_grad:
            logits.register_hook(slopes.append)

    net.prepare(batch)  # its probe passes a gradient of its own
    net.model.register_forward_hook(watch)
    logs = [net.step(batch) for _ in range(3)]
    assert all(value.isfinite() for log in logs for value in log.values())
    assert (
        logs[-1]["loss"] < logs[0]["loss"] or method == "m_ada"
    )  # whose first step has no domain to add the loss of
    assert not torch.equal(start, net.model.body.conv1.weight)
    assert slopes and all(
        (slope[..., :16] == 0).all() and slope[..., 16:].any() for slope in slopes
    )
    if method == "uncertainty_guided":
        assert {"mixed_loss", "lambda", "ascent_gain"} <= logs[0].keys()


def test_labels_are_mixed_for_each_pixel_and_only_where_there_is_one():
    torch.manual_seed(0)
    y = torch.tensor([[[0, 1], [IGNORE, 2]], [[IGNORE, IGNORE], [1, 0]]])  # two maps of 2x2
    logits = torch.randn(4, 3, 2, 2, dtype=torch.float64)  # of two draws
    lam, won = torch.tensor([[0.9, 0.3], [0.5, 0.2]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    lam, won, rho = lam.double(), won.double(), 0.8
    total, counted = 0.0, 0
    for draw in range(2):
        for sample in range(2):
            for row in range(2):
                for column in range(2):
                    label = int(y[sample, row, column])
                    if label == IGNORE:
                        continue
                    hard = [float(c == label) for c in range(3)]
                    smooth = (
                        [rho if c == label else (1 - rho) / 2 for c in range(3)]
                        if won[draw, sample]
                        else hard
                    )
                    mix = float(lam[draw, sample])
                    target = torch.tensor(
                        [mix * h + (1 - mix) * s for h, s in zip(hard, smooth, strict=True)]
                    ).double()
                    total -= float(
                        target @ logits[2 * draw + sample, :, row, column].log_softmax(0)
                    )
                    counted += 1
    assert float(mixed_loss(logits, y, lam, won, rho, IGNORE)) == pytest.approx(
        total / counted, abs=1e-7
    )


# ---- pictures


def test_every_class_has_a_colour_of_its_own_and_it_stays_the_same():
    for names in (COMMON, SYNTHIA, tuple("abcdefgh")):
        assert len({tuple(c) for c in class_colors(names)}) == len(names)
    assert set(COMMON) | set(SYNTHIA) <= set(COLORS)
    shared = set(COMMON) & set(SYNTHIA)
    assert all(
        (class_colors(COMMON)[COMMON.index(n)] == class_colors(SYNTHIA)[SYNTHIA.index(n)]).all()
        for n in shared
    )


def test_a_label_map_in_colour():
    picture = colorize(np.array([[ROAD, SKY, IGNORE, -100]]), COMMON)
    expected = [*class_colors(COMMON)[[ROAD, SKY]].tolist(), [0, 0, 0], [0, 0, 0]]
    assert picture.shape == (1, 4, 3) and picture[0].tolist() == expected


def area(path: Path, name: str) -> int:
    """How many pixels of a picture are exactly in a class's colour."""
    colour = class_colors([name])[0]
    with Image.open(path) as image:
        return int((np.asarray(image.convert("RGB")) == colour).all(2).sum())


def test_side_by_side_shows_truth_and_each_prediction(tmp_path):
    images = np.full((2, 90, 120, 3), 255, np.uint8)
    truth, out = np.full((2, 90, 120), ROAD), tmp_path / "new/picture.png"
    draw_side_by_side(
        out,
        images,
        truth,
        {"ours": np.full((2, 90, 120), SKY), "erm": np.full((2, 90, 120), SKY)},
        COMMON,
    )
    legend = area(out, "person")
    sky, road = area(out, "sky") - legend, area(out, "road") - legend
    assert 0 < legend < road / 20 and sky == pytest.approx(2 * road, rel=0.02), (
        "two runs say sky where one truth says road"
    )


def test_frames_are_spread_over_the_drive():
    assert (
        evenly_spaced(10, 2) == [2, 7]
        and evenly_spaced(3, 8) == [0, 1, 2]
        and evenly_spaced(100, 1) == [50]
    )


def test_draw_predictions_of_finished_runs(root, tmp_path):
    task = driving.task()
    short = {"width": 0.125, "steps": 1, "batch_size": 4}
    runs = [
        train(
            task,
            method,
            tmp_path / f"runs/{method}{seed}",
            overrides=short,
            seed=seed,
            progress=False,
        )
        for method, seed in (("erm", 0), ("erm", 1), ("gud", 0))
    ]
    told = draw_predictions(runs[1:], task, "dusk", tmp_path / "dusk.png", frames=2)
    assert (
        list(told["runs"]) == ["erm", "gud"]
        and told["frames"] == [1, 3]
        and told["variant"] == "camvid_day"
    )
    with Image.open(tmp_path / "dusk.png") as image:
        assert image.width > image.height
    assert list(draw_predictions(runs, task, "source", tmp_path / "day.png")["runs"]) == [
        "erm seed 0",
        "erm seed 1",
        "gud seed 0",
    ]
    for wrong, said in (
        ({"runs": [runs[0], Run(runs[0].folder)]}, "named twice"),
        ({"runs": []}, "at least one"),
        ({"out": tmp_path / "dusk.jpg"}, "dusk.jpg must be a PNG file, e.g. .*dusk.png"),
        ({"domain": "night"}, 'no domain "night"'),
        ({"frames": 0}, "frames"),
        ({"task": driving.task("carla_clear")}, "trained on driving/camvid_day"),
        ({"runs": [Run(tmp_path)]}, "config.json"),
    ):
        with pytest.raises(UnseenError, match=said):
            draw_predictions(
                **{
                    "runs": runs[:1],
                    "task": task,
                    "domain": "dusk",
                    "out": tmp_path / "x.png",
                    **wrong,
                }
            )


# ---- what is off is named


def change_table(**changes):
    return lambda folder: (folder / "classes.json").write_text(json.dumps({**CLASSES, **changes}))


def common10(names=data.CLASSES, **lookup):
    return change_table(common10={"names": list(names), "lookup": {**LOOKUP, **lookup}})


DUSK = "camvid/0001TP"
BROKEN = {
    "a table of something else": (
        change_table(common10={"names": list(data.CLASSES)}),
        "KeyError: 'lookup'",
    ),
    "no JSON": (lambda f: (f / "classes.json").write_text("{"), "JSONDecodeError"),
    "classes in another order": (common10(data.CLASSES[::-1]), "its names are person, vehicle"),
    "a class that is not common": (
        common10(camvid=[0, 1, 10]),
        r"its lookup of camvid is \[0, 1, 10\]",
    ),
    "a class in words": (common10(camvid=["sky"]), r"its lookup of camvid is \['sky'\]"),
    "no drive": (lambda f: (f / DUSK / "images").rename(f / "gone"), "0001TP/images is missing"),
    "an empty drive": (
        lambda f: [p.unlink() for p in (f / DUSK / "images").iterdir()],
        "contains no .jpg file",
    ),
    "no label map": (
        lambda f: (f / DUSK / "labels/00002.png").unlink(),
        "1 frames lack an image or a label map, e.g. 00002",
    ),
    "no image": (
        lambda f: (f / DUSK / "images/00002.jpg").unlink(),
        "1 frames lack an image or a label map, e.g. 00002",
    ),
    "a map in colour": (
        lambda f: Image.new("RGB", (240, 180)).save(f / DUSK / "labels/00000.png"),
        "is RGB; expected images/<name>.jpg",
    ),
    "an unknown class": (
        lambda f: write_frame(f / DUSK, "00000", street(11)),
        "00000.png .* has the class 11; expected classes among 0, 1,",
    ),
    "a map of another size": (
        lambda f: Image.new("L", (33, 17)).save(f / DUSK / "labels/00001.png"),
        "00001.png .* is 33x17; expected 240x180",
    ),
    "a cut image": (
        lambda f: (f / DUSK / "images/00001.jpg").write_bytes(b"\xff\xd8\xff"),
        "00001.jpg .* cannot be read",
    ),
}


@pytest.mark.parametrize("spoil, said", BROKEN.values(), ids=BROKEN)
def test_broken_file_is_named(root, spoil, said):
    spoil(root / "driving")
    with pytest.raises(UnseenError, match=said) as caught:
        data.load_scenes("dusk")
    assert VARIABLE in str(caught.value)
    row = next(r for r in catalog.check("driving") if r["domain"] == "dusk")
    assert row["state"] in ("broken", "missing") and row["n"] == 0


def test_missing_data_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(
        UnseenError, match=r"no driving data: .*driving does not exist; `unseen data fetch driving`"
    ):
        driving.task().source.load("train")
    with pytest.raises(UnseenError, match="no domain night; it has: day, dusk, clear"):
        data.list_drives("night")


# ---- the real frames

REAL = Path(os.environ.get(VARIABLE, "")) / "driving"
needs_real_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE) or not REAL.is_dir(),
    reason=f"{VARIABLE} names no folder with the driving data in it",
)


@needs_real_data
@pytest.mark.parametrize("domain", ["day", "clear"])
def test_our_own_table_is_the_one_beside_the_real_frames(domain, tmp_path):
    theirs, ours = data.class_lookup(domain), data.class_lookup(domain, tmp_path)
    assert (theirs == ours)[theirs != data.UNKNOWN].all()


@needs_real_data
def test_the_real_splits_have_the_sizes_that_the_presets_count_on():
    day, clear = (347, 115, 115), (180, 60, 60)
    for variant, split_sizes in (
        ("camvid_day", day), ("camvid_day_large", day), ("carla_clear", clear),
    ):  # fmt: skip
        (drives,) = [data.list_drives(driving.task(variant).source.name)]
        sizes = [
            sum(len(data.split_drive(d, split, data.TRAIN_SHARE)) for d in drives)
            for split in ("train", "val", "test")
        ]
        assert tuple(sizes) == split_sizes and FRAMES[variant] == sizes[0]
    assert [len(d) for d in data.list_drives("dusk")] == [124]


@needs_real_data
@pytest.mark.parametrize("domain", ["dusk", "clear"])
def test_in_real_scenes_the_sky_is_above_the_road_and_brighter_than_trees(domain):
    x, y = data.load_scenes(domain)
    assert (
        x.shape[1:] == (3, 90, 120)
        and set(y.unique().tolist()) <= {*range(10), IGNORE}
        and len(y.unique()) > 9
    )
    height = torch.arange(90).view(1, 90, 1).expand(y.shape)
    assert (
        height[y == COMMON.index("sky")].float().mean() + 20
        < height[y == COMMON.index("road")].float().mean()
    )
    grey = x.float().mean(1)
    assert (
        grey[y == COMMON.index("sky")].mean() > 1.3 * grey[y == COMMON.index("vegetation")].mean()
    )
