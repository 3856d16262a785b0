"""What strangers' bytes are given to, and what may come of it: an answer, or one sentence of ours.

Each target takes the bytes of one file. Whatever else it raises is a fault of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import struct
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch

from mgcap.backbones.pretrained import state_hash
from mgcap.classifier import SceneClassifier
from mgcap.data.imagery import Imagery
from mgcap.data.images import read_image
from mgcap.data.synthetic import CLASSES, draw_scene
from mgcap.errors import BundleError, ImageError, RasterError, WeightsError
from mgcap.geo.opening import open_raster
from mgcap.geo.raster import choose_look, read_window
from mgcap.persistence.bundle import read_bundle
from mgcap.persistence.cache import RowStore
from tests.conftest import TINY

LIMIT = 4_000_000


@lru_cache(maxsize=1)
def folder() -> Path:
    """For files of this process."""
    return Path(tempfile.mkdtemp(prefix="mgcap-attacks-"))


def _one_line(error: Exception) -> None:
    sentence = str(error)
    assert sentence and "\n" not in sentence, repr(sentence)


def _suffix(data: bytes) -> str:
    marks = {b"\xff\xd8": ".jpg", b"\x89P": ".png", b"RI": ".webp"}
    return marks.get(data[:2], ".tif")


def image(data: bytes) -> None:
    """An image file."""
    path = folder() / f"image{_suffix(data)}"
    path.write_bytes(data)
    try:
        found = read_image(path)
    except ImageError as error:
        _one_line(error)
        return
    assert found.shape[0] == 3 and found.dtype == torch.float32
    assert bool(torch.isfinite(found).all()) and float(found.min()) >= 0 and float(found.max()) <= 1


def raster(data: bytes) -> None:
    """A raster; what it shows is read at full size and thinned out."""
    path = folder() / "raster.tif"
    path.write_bytes(data)
    try:
        with open_raster(path) as dataset:
            if dataset.width * dataset.height > LIMIT:
                return
            look = choose_look(dataset, Imagery(), None, "percentiles")
            for shape in ((dataset.height, dataset.width), (8, 8)):
                pixels, valid = read_window(dataset, look, 0, 0, dataset.width, dataset.height, shape)
                assert np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 1
                assert valid.shape == shape
    except RasterError as error:
        _one_line(error)


@lru_cache(maxsize=1)
def good_bundle() -> bytes:
    """A small model with all its weights inside."""
    images = [draw_scene(name, 0, index, 64) for name in CLASSES[:2] for index in range(4)]
    path = folder() / "good.mgcap"
    config = {**TINY, "layer": "conv1", "cache": False, "regularisation": 1.0}  # few bytes
    SceneClassifier(**config).fit(images, [name for name in CLASSES[:2] for _ in range(4)]).save(path)
    return path.read_bytes()


def resealed(data: bytes) -> bytes:
    """A model file whose digest fits again, as a stranger would write it."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    own = json.loads(header["__metadata__"]["mgcap"])
    own.pop("digest", None)
    from safetensors.torch import load

    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    own["digest"] = hashlib.sha256((text + state_hash(load(data))).encode()).hexdigest()
    header["__metadata__"]["mgcap"] = json.dumps(own)
    packed = json.dumps(header).encode()
    return struct.pack("<Q", len(packed)) + packed + data[8 + length :]


def bundle(data: bytes) -> None:
    """A model file, as it is and with its digest mended."""
    path = folder() / "model.mgcap"
    forms = [data]
    with contextlib.suppress(Exception):  # it may be too damaged to be sealed
        forms.append(resealed(data))
    for form in forms:
        path.write_bytes(form)
        try:
            read_bundle(path)
            loaded = SceneClassifier.load(path, engine="torch")
            proba = loaded.predict_proba([np.zeros((64, 64, 3), np.uint8)])
            assert np.isfinite(proba).all()
            if loaded.sample_ is not None:
                loaded.limits(0.01)
                loaded.sample_.pictures()
        except (BundleError, WeightsError, ImageError) as error:
            _one_line(error)


KEYS = [bytes([number]) * 32 for number in range(4)]


@lru_cache(maxsize=1)
def good_chunk() -> bytes:
    """A chunk of the feature cache."""
    own = folder() / "good-store"
    store = RowStore(own)
    store.add(KEYS, torch.randn(len(KEYS), 6, generator=torch.Generator().manual_seed(0)))
    (path,) = own.glob("*.safetensors")
    return path.read_bytes()


def chunk(data: bytes) -> None:
    """A chunk of the feature cache: rows that are found are those that were written."""
    own = folder() / "store"
    own.mkdir(exist_ok=True)
    for left in own.iterdir():
        left.unlink()
    (own / "chunk.safetensors").write_bytes(data)
    store = RowStore(own)
    expected = torch.randn(len(KEYS), 6, generator=torch.Generator().manual_seed(0))
    for number, key in enumerate(KEYS):
        if key in store:
            torch.testing.assert_close(store.read([key])[0], expected[number], rtol=1e-3, atol=1e-6)


BOUNDARY = b"x0"


def good_request() -> bytes:
    """The body of a request."""
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(draw_scene(CLASSES[0], 0, 0, 64)).save(buffer, "PNG")
    parts = {b"model": b"", b"overlap": b"0.5", b"tile": b"64px", b"bands": b"3,2,1", b"scale": b"0,255"}
    body = b"".join(
        b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (BOUNDARY, name, value)
        for name, value in parts.items()
    )
    head = b'--%b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n' % BOUNDARY
    return body + head + buffer.getvalue() + b"\r\n--%b--\r\n" % BOUNDARY


@lru_cache(maxsize=1)
def _app() -> Any:
    from mgcap.serve.app import create_app
    from mgcap.serve.service import load_models
    from mgcap.serve.settings import Settings

    good_bundle()
    return create_app(load_models([folder() / "good.mgcap"], engine="torch"), Settings(max_megapixels=1))


def request(data: bytes) -> None:
    """The body of a request to each address that takes one."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(_app(), raise_app_exceptions=True)
        kind = {"content-type": f"multipart/form-data; boundary={BOUNDARY.decode()}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [
                await client.post(f"/api/{path}", content=data, headers=kind) for path in ("predict", "explain", "map")
            ]

    for reply in asyncio.run(ask()):
        assert reply.status_code < 500 or reply.status_code == 503, (reply.status_code, reply.text)
        assert reply.headers["x-frame-options"] == "DENY"
        if reply.status_code >= 400:
            assert list(reply.json()) == ["error"] and "\n" not in reply.json()["error"]


TARGETS: dict[str, Callable[[bytes], None]] = {
    "image": image,
    "raster": raster,
    "bundle": bundle,
    "chunk": chunk,
    "request": request,
}
