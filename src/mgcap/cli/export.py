"""``mgcap export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mgcap.cli import completion as c
from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, data, guarded
from mgcap.cli.signature import expanded
from mgcap.persistence.shipped import DEFAULT_MODEL


@guarded
@expanded
def export(
    model: o.Model = DEFAULT_MODEL,
    add: o.Add = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="Format of the file: onnx, openvino or pt2 (torch.export).",
            **c.only(c.EXPORTS),
        ),
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write, as model.onnx; default: the model's name with the right suffix."),
    ] = None,
    side: Annotated[
        int | None,
        typer.Option(help="Side of the images in pixels, as 256; default: that of the training images.", min=8),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="Compare both models on this folder of scenes, as scenes/.")
    ] = None,
    split: Annotated[
        Path | None, typer.Option(help="Take only the test images of this split file for --check.")
    ] = None,
    at_least: Annotated[
        float, typer.Option(help="Fail if both models give the same class on a smaller share of --check.", min=0, max=1)
    ] = 0.995,
) -> None:
    """Write the whole model, image to probabilities, for onnxruntime, OpenVINO or torch without mgcap.

    What was written is run and compared with the model before it gets its name.

    Example: mgcap export --format onnx --out ucmerced.onnx
    """
    from mgcap.classifier import SceneClassifier
    from mgcap.errors import MgcapError
    from mgcap.persistence.export import FORMATS, agreement, check_format, export_model, open_exported

    target = check_writable(out or Path(f"{model.stem}{FORMATS[form]}"))
    check_format(form, target)
    o.run_added(add)
    classifier = SceneClassifier.load(model, device="cpu", engine="torch", progress=bars)
    with bars(f"Exporting to {form}", None):
        worst = export_model(classifier, form, target, side)
    bars.say(f"probabilities of random images differ by {worst:.1g} at most")
    if check is not None:
        from mgcap.data.folders import open_folder
        from mgcap.data.splits import read_split

        folder = open_folder(check, progress=bars)
        paths = folder.paths if split is None else folder.subset(read_split(split, folder).test).paths
        with bars("Comparing", len(paths)) as step:
            same = agreement(classifier, open_exported(target), paths, side or classifier.imagery_.side, step)
        bars.say(f"the same class on {100 * same:.2f} % of {len(paths)} images")
        if same < at_least:
            raise MgcapError(f"that is less than {100 * at_least:.2f} %, so {target} should not be used")
    data.print(str(target), markup=False)
