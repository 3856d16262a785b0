"""Draw the pictures of the documentation from a trained model.

python docs/figures.py --scenes demo-output/scenes --model demo-output/model.mgcap
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.patches import Rectangle

import mgcap
from mgcap.data.images import read_image
from mgcap.inference.forward import embed, normalise_spectrum
from mgcap.pooling import canonical_max, fuse
from mgcap.views import make_views


def contact_sheet(scenes: Path, out: Path) -> None:
    """One picture of every class."""
    classes = sorted(p for p in scenes.iterdir() if p.is_dir())
    figure, axes = plt.subplots(4, 5, figsize=(10, 8.6))
    for axis in axes.flat:
        axis.axis("off")
    for axis, folder in zip(axes.flat, classes, strict=False):
        axis.imshow(plt.imread(sorted(folder.glob("*.png"))[2]))
        axis.set_title(folder.name.replace("_", " "), fontsize=10)
    figure.tight_layout()
    figure.savefig(out, dpi=66)


def the_line(model: mgcap.SceneClassifier, image: Path, out: Path) -> None:
    """An image on its way through the model."""
    net = model.model_
    c = net.config
    tensor = read_image(image)[None]
    with torch.inference_mode():
        views = make_views(tensor, c.granularities, c.rotations, c.size, c.frame, c.corners)[0, 0]
        normalised = make_views((tensor - net.mean) / net.std, c.granularities, c.rotations, c.size, c.frame, c.corners)
        matrices = embed(net.local_features(normalised[0, 0]), c, net.reduction)
        pooled, _ = canonical_max(matrices)
        root = normalise_spectrum(fuse(pooled[None]), c)
        votes = net.canonical(tensor).votes[0, 0]
    proba = model.predict_proba([image])[0]
    order = proba.argsort()[::-1][:5]
    winner = int(votes.argmax())
    plt.rcParams["axes.titlesize"] = 10
    figure, axes = plt.subplots(2, 4, figsize=(13, 6.6))
    axes[0, 0].imshow(tensor[0].permute(1, 2, 0))
    axes[0, 0].set_title("image")
    for axis, r in zip((axes[0, 1], axes[0, 2], axes[0, 3]), range(1, 4), strict=True):
        axis.imshow(views[r].permute(1, 2, 0).clip(0, 1))
        axis.set_title(f"rotated by {c.angles[r]:.0f}°: {100 * votes[r] / votes.sum():.1f} % of votes")
        if r == winner:
            axis.add_patch(Rectangle((1, 1), c.size - 4, c.size - 4, fill=False, lw=4, ec="tab:orange"))
    axes[0, 0].set_title(f"image (0°): {100 * votes[0] / votes.sum():.1f} % of votes")
    if winner == 0:
        side = tensor.shape[-1]
        axes[0, 0].add_patch(Rectangle((1, 1), side - 4, side - 4, fill=False, lw=4, ec="tab:orange"))
    for axis, matrix, title in (
        (axes[1, 0], matrices[0], "Gaussian matrix, one view"),
        (axes[1, 1], pooled, "maximum over rotations"),
        (axes[1, 2], root[0] if root.ndim == 3 else root, "its square root"),
    ):
        values = matrix[:48, :48].numpy()
        limit = np.quantile(np.abs(values), 0.98)
        axis.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axis.set_title(f"{title} (48 of {matrix.shape[-1]})")
    axes[1, 3].barh([str(model.classes_[k]).replace("_", " ") for k in order][::-1], proba[order][::-1])
    axes[1, 3].set_xlim(0, 1)
    axes[1, 3].set_title("probabilities")
    for axis in axes.flat[:7]:
        axis.set_xticks([])
        axis.set_yticks([])
    figure.tight_layout()
    figure.savefig(out, dpi=75)


def main() -> None:
    """Draw both pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    args = parser.parse_args()
    args.out.mkdir(exist_ok=True)
    contact_sheet(args.scenes, args.out / "scenes.png")
    image = sorted((args.scenes / "runway").glob("*.png"))[2]
    the_line(mgcap.load(args.model), image, args.out / "line.png")


if __name__ == "__main__":
    main()
