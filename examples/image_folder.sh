#!/bin/sh
# From a folder of images to a verdict on a second one, without Python.
#
#     sh examples/image_folder.sh [FOLDER]
#
# The images are drawn here; put your own in photos/CLASS/FILE instead. The settings make the
# network and the training tiny: leave out SETTINGS for your own images.
set -e
cd "${1:-$(mktemp -d)}"
unseen="${UNSEEN:-unseen}"
SETTINGS="--set steps=120 --set width=0.125 --set lr=0.002 --set warmup=40 --set adversary=none"

"${PYTHON:-python3}" - <<'PYTHON'
from pathlib import Path
import numpy as np
from PIL import Image, ImageDraw

rng = np.random.default_rng(0)
def draw(name, night):
    back = tuple(rng.integers(5, 40, 3)) if night else tuple(rng.integers(150, 256, 3))
    ink = tuple(rng.integers(40, 90, 3)) if night else tuple(rng.integers(0, 90, 3))
    image = Image.new("RGB", (24, 24), tuple(map(int, back)))
    x, y = (int(v) for v in rng.integers(2, 8, 2))
    box, pen = (x, y, x + 13, y + 13), ImageDraw.Draw(image)
    if name == "disc":
        pen.ellipse(box, fill=tuple(map(int, ink)))
    else:
        pen.line(box, fill=tuple(map(int, ink)), width=3)
    return image
def write(folder, names, count, night=False):
    for i in range(count):
        for name in ("disc", "line"):
            path = Path(folder, name if names else "")
            path.mkdir(parents=True, exist_ok=True)
            draw(name, night).save(path / f"{name}{i}.png")
write("photos", True, 150)             # photos/disc/.., photos/line/..: the folders are the labels
write("night", False, 40, night=True)  # night/..: no labels
PYTHON

$unseen data inspect photos --sheet sheet.png
$unseen train --data photos --out run $SETTINGS
$unseen score run --data night
$unseen predict run --data night --out predictions.csv --reject-rate 0.1
$unseen report run --data night --out report
