"""Peak memory and time of index and map of a very large raster that is nearly all without data.

    python benchmarks/territory.py --csv benchmarks/results/territory.csv

A sparse GeoTIFF of 50,000 x 50,000 pixels has data in a square in its middle, of drawn scenes, which is larger than
a block, so that the memory is that of any raster of this size. Each command runs in a process of its own, whose peak
resident size is what the operating system says at its end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import rasterio
from common import write_rows
from rasterio.transform import from_origin
from rasterio.windows import Window

from mgcap.data.synthetic import CLASSES, draw_scene

#: Side of a drawn scene, and the resolution of the shipped model.
SCENE, METRES = 256, 0.3


def write_sparse(path: Path, side: int, data: int) -> None:
    """Write the raster, whose blocks without data take no room."""
    size = {"width": side, "height": side, "count": 3, "dtype": "uint8", "nodata": 0, "crs": "EPSG:32610"}
    place = from_origin(500_000, 5_300_000, METRES, METRES)
    kind = {"driver": "GTiff", "tiled": True, "sparse_ok": True, "bigtiff": "yes", "compress": "deflate"}
    with rasterio.open(path, "w", transform=place, **size, **kind) as dataset:
        begin = (side - data) // 2
        for number, (row, column) in enumerate(np.ndindex(2 * (-(-data // SCENE),))):
            tile = np.maximum(draw_scene(CLASSES[number % len(CLASSES)], 0, number, SCENE), 1)
            width, height = (min(SCENE, data - n * SCENE) for n in (column, row))
            window = Window(begin + column * SCENE, begin + row * SCENE, width, height)
            dataset.write(np.moveaxis(tile, -1, 0)[:, :height, :width], window=window)


def measure(*arguments: object) -> dict[str, object]:
    """Run a command; its peak memory and seconds."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "mgcap", *map(str, arguments)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"mgcap {arguments[0]} failed")
    return {"peak_mib": usage.ru_maxrss // 1024, "seconds": round(time.perf_counter() - begin, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=50_000, help="Of the raster, in pixels.")
    parser.add_argument("--data", type=int, default=8_000, help="Of the square that has data, in pixels.")
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        raster, index = folder / "scene.tif", folder / "scene.zarr"
        write_sparse(raster, args.side, args.data)
        rows = []
        for name, command in {
            "index": ("index", raster, "--out", index),
            "map": ("map", raster, "--index", index, "--out", folder / "first.gpkg"),
            "coarser map": ("map", raster, "--index", index, "--cells", 2, "--out", folder / "second.gpkg"),
        }.items():
            rows.append({"command": name, "side": args.side, "data": args.data, **measure(*command)})
            print(rows[-1], flush=True)
        write_rows(args.csv, rows)


if __name__ == "__main__":
    main()
