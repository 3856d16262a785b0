"""What is installed without any extra is enough to train, predict, save and load; what is not is named."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import TINY

#: Keeps a child from importing the modules that are named.
_FENCE = """
import sys
from importlib.machinery import PathFinder
refused = {names!r}
class Fence:
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in refused else PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Fence()
"""

_WORK = """
from mgcap import SceneClassifier
from mgcap.data.synthetic import CLASSES, draw_scene
images = [draw_scene(CLASSES[i % 2], 0, i, 64) for i in range(8)]
model = SceneClassifier(**{tiny!r}).fit(images, [i % 2 for i in range(8)])
model.save({path!r})
assert SceneClassifier.load({path!r}).predict(images).shape == (8,)
print(model.engine_.name)
"""


def _beyond_core() -> set[str]:
    """Installed modules that neither this package's own requirements without extras nor theirs bring."""
    waiting, seen = ["mgcap"], set()
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        try:
            asked = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system, or optional
        seen.add(name)
        needed = [Requirement(line) for line in asked]
        waiting += [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    owners = importlib.metadata.packages_distributions()
    return {
        module for module, names in owners.items() if not {re.sub(r"[-_.]+", "-", own).lower() for own in names} & seen
    }


def _run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    fence = _FENCE.format(names=_beyond_core())
    return subprocess.run([sys.executable, "-c", fence + code, *arguments], capture_output=True, text=True, check=False)


def test_the_core_needs_no_extra(tmp_path: Path) -> None:
    assert {"h5py", "imagecodecs", "tensorboardX", "lightning_fabric", "rasterio", "openvino"} <= _beyond_core()
    done = _run(_WORK.format(tiny={**TINY, "engine": "auto"}, path=str(tmp_path / "m.mgcap")))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torch\n"


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["doctor", "--json", "-"]], ids=" ".join)
def test_commands_answer_without_extras(arguments: list[str]) -> None:
    done = _run("from mgcap.cli import main; sys.argv[0] = 'mgcap'; main()", *arguments)
    assert done.returncode == 0, done.stderr
    if "--json" in arguments:
        assert "mgcap[cpu]" in json.dumps(json.loads(done.stdout))
    else:
        assert "mgcap" in done.stdout


def test_help_is_light() -> None:
    """It imports nothing that takes long, so it is there at once; the best of some runs counts."""
    show = "from mgcap.cli import main; sys.argv = ['mgcap', '--help']; main()"
    code = f"import sys\ntry:\n    {show}\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "torch", "numpy", "scipy", "sklearn", "pydantic", "matplotlib", "PIL", "safetensors", "tifffile", "jinja2",
        "importlib.metadata", "multiprocessing", "asyncio",
    } | _beyond_core()  # fmt: skip
    assert "Commands" in done.stdout and not heavy & set(done.stderr.split())

    def seconds(*arguments: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        return time.perf_counter() - start

    plain = own = float("inf")
    for _ in range(25):  # beside other work some runs are slow, but not all
        plain, own = min(plain, seconds("-c", "pass")), min(own, seconds("-m", "mgcap", "--help"))
        limit = 0.4 * max(1, plain / 0.05)  # where Python alone takes more than 0.05 s, the machine is slow
        if own < limit:
            return
    pytest.fail(f"mgcap --help took {own:.2f} s, Python alone {plain:.2f} s")


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from mgcap.training.distributed import open_fabric; open_fabric(None)", "finetune"),
        ("from mgcap.backbones.readers import read_keras_h5; read_keras_h5(Path('x.h5'))", "keras"),
        ("from mgcap.data.decoding import read_rgb; read_rgb(sys.argv[1])", "formats"),
        ("from mgcap.geo.cluster import cluster_workers; cluster_workers('local:1').__enter__()", "cluster"),
    ],
)
def test_what_is_missing_is_named_with_its_extra(code: str, extra: str, tmp_path: Path) -> None:
    import numpy as np
    import tifffile

    deep = tmp_path / "deep.tif"
    tifffile.imwrite(deep, np.zeros((64, 64, 3), np.uint16), compression="lzw")
    code = f"from pathlib import Path\ntry:\n    {code}\nexcept Exception as error:\n    print(error)"
    done = _run(code, str(deep))
    assert f"pip install 'mgcap[{extra}]'" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("command", [["map", "x.tif"], ["serve"], ["export"]], ids=" ".join)
def test_commands_name_the_extra_they_need(command: list[str]) -> None:
    done = _run("from mgcap.cli import main; sys.argv[0] = 'mgcap'; main()", *command)
    assert done.returncode == 1 and re.search(r"pip install 'mgcap\[\w+\]'", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
