"""Time the making of CIFAR-10-C; --sheet also draws 15 corruptions x 5 severities.

    python benchmarks/corruptions.py [--images 2000] [--sheet corruptions.png] [--show 11]

Needs CIFAR-10's test file and the frost overlays (docs/tasks/cifar10_c.md). Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from unseen.data import cifar10
from unseen.data.corruptions import CORRUPTIONS, GROUPS, SEVERITIES, corrupt
from unseen.errors import UnseenError


def load_images(count: int) -> NDArray[np.uint8]:
    pixels, _ = cifar10.load_images(cifar10.Slice("test", 0, count))
    return np.ascontiguousarray(pixels.permute(0, 2, 3, 1).numpy())


def time_corruptions(images: NDArray[np.uint8]) -> dict[str, float]:
    """Return the seconds that the five sets of each corruption take."""
    seconds = {}
    for name in CORRUPTIONS:
        start = time.perf_counter()
        for severity in SEVERITIES:
            corrupt(images, name, severity)
        seconds[name] = round(time.perf_counter() - start, 3)
    return seconds


def contact_sheet(image: NDArray[np.uint8], scale: int = 3) -> Image.Image:
    """Draw a row for each corruption: its name, the clean image and the five severities."""
    tile, margin, words, heading = 32 * scale, 4, 230, 30
    width, height = words + 6 * (tile + margin), heading + len(CORRUPTIONS) * (tile + margin)
    canvas = Image.new("RGB", (width, height), "white")
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(18)
    rows = [(group, name) for group, names in GROUPS.items() for name in names]
    for column, title in enumerate(["clean", *(f"severity {severity}" for severity in SEVERITIES)]):
        draw.text(
            (words + column * (tile + margin) + tile // 2, heading // 2),
            title,
            fill="black",
            font=font,
            anchor="mm",
        )
    for row, (group, name) in enumerate(rows):
        top = heading + row * (tile + margin)
        draw.text((8, top + tile // 2 - 20), f"{group}\n{name}", fill="black", font=font)
        shown = [image, *(corrupt(image[None], name, severity)[0] for severity in SEVERITIES)]
        for column, pixels in enumerate(shown):
            large = Image.fromarray(pixels).resize((tile, tile), Image.Resampling.NEAREST)
            canvas.paste(large, (words + column * (tile + margin), top))
    return canvas


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--sheet", type=Path, help="write the contact sheet to this PNG")
    parser.add_argument("--show", type=int, default=11, help="which test image the sheet shows")
    args = parser.parse_args()
    if args.sheet:
        contact_sheet(load_images(args.show + 1)[args.show]).save(args.sheet)
    images = load_images(args.images)
    seconds = time_corruptions(images)
    sets = len(CORRUPTIONS) * len(SEVERITIES)
    print(
        json.dumps(
            {
                "sets": sets,
                "images": len(images),
                "seconds": round(sum(seconds.values()), 2),
                "by_corruption": seconds,
            }
        )
    )


if __name__ == "__main__":
    try:
        main()
    except UnseenError as error:
        sys.exit(str(error))
