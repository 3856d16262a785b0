"""Draw the studies of rotations and granularities on UC Merced from their tables.

python benchmarks/pictures.py --out docs/images/studies.png
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from mgcap.report.charts import new_figure, save_figure
from mgcap.report.colours import CHART

RESULTS = Path(__file__).parent / "results" / "ucmerced"
STUDIES = {
    "rotations": "rotations, three granularities",
    "granularities": "granularities, twelve rotations",
}
LINES = {
    "compact-80": ("ResNet-50 (compact), 80 % training", "o-"),
    "compact-50": ("ResNet-50 (compact), 50 % training", "o--"),
    "vgg16-80": ("VGG-16 (paper), 80 % training", "s-"),
    "vgg16-50": ("VGG-16 (paper), 50 % training", "s--"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    figure = new_figure(11, 4.5)
    for axes, (study, title) in zip(figure.subplots(1, 2, sharey=True), STUDIES.items(), strict=True):
        for number, (folder, (label, style)) in enumerate(LINES.items()):
            table = RESULTS / folder / f"{study}.csv"
            if not table.exists():
                continue
            rows = list(csv.DictReader(table.open()))
            names, means, spreads = zip(*((r["setting"], float(r["mean"]), float(r["std"])) for r in rows), strict=True)
            colour = CHART[number // 2]
            places = [place + 0.06 * (number - 1.5) for place in range(len(names))]
            axes.errorbar(places, means, spreads, fmt=style, color=colour, label=label, capsize=3, elinewidth=1)
            axes.set_xticks(range(len(names)), names)
        axes.set_title(title, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    figure.axes[0].set_ylabel("accuracy, %")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    save_figure(figure, args.out)


if __name__ == "__main__":
    main()
