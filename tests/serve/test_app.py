from __future__ import annotations

import io
import socket
import struct
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import rasterio
from PIL import Image
from rasterio.transform import from_origin

from mgcap.classifier import SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.serve.compute import Compute
from tests.serve.conftest import Start


@pytest.fixture
def image(scenes: Path) -> Path:
    return open_folder(scenes).paths[0]


def _sent(path: Path | bytes, name: str = "x") -> dict[str, Any]:
    return {"files": {"file": (name, path if isinstance(path, bytes) else path.read_bytes())}}


def test_predict_says_what_the_model_says(start: Start, image: Path, model_files: list[Path]) -> None:
    url = start()
    for number, name in enumerate((None, "second")):
        data = {"model": name} if name else {}
        found = httpx.post(f"{url}/api/predict", data=data, **_sent(image)).json()
        own = SceneClassifier.load(model_files[number], engine="torch")
        expected = own.predict_proba([image])[0]
        assert found["model"] == model_files[number].stem
        assert found["class"] == own.classes_[expected.argmax()]
        assert [e["probability"] for e in found["top"]] == pytest.approx(sorted(expected)[::-1][:5], abs=1e-5)


def test_explain_gives_pictures_and_votes(start: Start, image: Path) -> None:
    url = start()
    classes = httpx.get(f"{url}/api/models").json()[0]["classes"]
    chosen = {"target": classes[1], "contrast": classes[0]}
    found = httpx.post(f"{url}/api/explain", data=chosen, **_sent(image), timeout=30).json()
    assert (found["target"], found["contrast"]) == (classes[1], classes[0])
    assert found["heat"].startswith("data:image/jpeg;base64,")
    (granularity,) = found["granularities"]
    assert sum(granularity["votes"]) == pytest.approx(1, abs=1e-3)
    assert found["rotations"] == [0, 90, 180, 270]
    wrong = httpx.post(f"{url}/api/explain", data={"target": "moon"}, **_sent(image))
    assert wrong.status_code == 400
    assert "does not know the class 'moon'" in wrong.json()["error"]


def test_map_and_its_files(start: Start, image: Path, tmp_path: Path) -> None:
    url = start(kept_maps=1)
    pixels = np.concatenate([np.asarray(Image.open(image))] * 2, 1)
    raster = tmp_path / "r.tif"
    place = {"crs": "EPSG:25832", "transform": from_origin(500_000, 5_600_000, 0.5, 0.5)}
    with rasterio.open(raster, "w", driver="GTiff", count=3, height=64, width=128, dtype="uint8", **place) as dataset:
        dataset.write(np.moveaxis(pixels, -1, 0))
    found = httpx.post(f"{url}/api/map", **_sent(raster), timeout=30).json()
    assert (found["rows"], found["columns"], len(found["cells"])) == (1, 2, 2)
    assert sum(entry["share"] for entry in found["legend"]) == pytest.approx(1)
    package = httpx.get(url + found["downloads"]["landuse.gpkg"])
    assert package.content.startswith(b"SQLite format 3")
    for name in ("upload.tif", "..%2Fupload.tif", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "none.gpkg"):
        assert httpx.get(f"{url}/api/maps/{found['id']}/{name}").status_code == 404
    again = httpx.post(f"{url}/api/map", data={"overlap": "0.5"}, **_sent(raster), timeout=30).json()
    assert again["columns"] == 4
    assert httpx.get(url + found["downloads"]["landuse.gpkg"]).status_code == 404  # only one map is kept
    assert httpx.post(f"{url}/api/map", **_sent(image)).status_code == 415
    bad = httpx.post(f"{url}/api/map", data={"scale": "dark"}, **_sent(raster))
    assert bad.status_code == 400
    assert "--scale takes" in bad.json()["error"]


def test_too_many_tiles_are_refused(start: Start, image: Path, tmp_path: Path) -> None:
    raster = tmp_path / "r.tif"
    with rasterio.open(raster, "w", driver="GTiff", count=3, height=64, width=64 * 9, dtype="uint8") as dataset:
        dataset.write(np.zeros((3, 64, 64 * 9), np.uint8))
    refused = httpx.post(f"{start(max_tiles=8)}/api/map", **_sent(raster))
    assert refused.status_code == 400
    assert refused.json()["error"] == "the map would have 9 tiles; 8 are allowed"


def test_cards_health_metrics_and_specification(start: Start, image: Path) -> None:
    url = start()
    card = httpx.get(f"{url}/api/models/second").json()
    assert card["rotations"] == 2
    assert card["imagery"]["resolution"] == 0.5
    assert httpx.get(f"{url}/health").json()["status"] == "ok"
    httpx.post(f"{url}/api/predict", **_sent(image))
    metrics = httpx.get(f"{url}/metrics").text
    assert 'mgcap_requests_total{path="/api/predict",status="200"} 1.0' in metrics
    assert 'mgcap_images_total{model="first"} 1.0' in metrics
    assert {"/api/predict", "/api/explain", "/api/map"} <= set(httpx.get(f"{url}/openapi.json").json()["paths"])
    page = httpx.get(url)
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "server" not in page.headers or "uvicorn" in page.headers["server"]
    for file in ("page.js", "docs.js", "page.css", "index.html", "docs.html"):
        assert "http://" not in httpx.get(f"{url}/static/{file}").text.replace("http://www.w3.org", "")
        assert "https://" not in httpx.get(f"{url}/static/{file}").text


def _png_bomb() -> bytes:
    """A PNG of 40,000 x 40,000 pixels in a few bytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


def _jpeg(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", 415),
        (b"GIF89a<script>alert(1)</script>", 415),
        (b"%PDF-1.7 \xff\xd8\xff", 415),
        (b"\xff\xd8\xff<html>polyglot</html>", 400),
        (b"\x89PNG\r\n\x1a\n<svg/>", 400),
        (b"II*\x00\xff\xff\xff\xff", 400),
        (_jpeg(600, 100)[:300], 400),
        (_png_bomb(), 413),
        (_jpeg(1200, 1000), 413),
        (_jpeg(4, 4), 400),
    ],
)
def test_bad_files_are_turned_away_in_one_sentence(start: Start, content: bytes, status: int) -> None:
    url = start(max_megapixels=1)
    reply = httpx.post(f"{url}/api/predict", **_sent(content, "../../etc/passwd.svg"))
    assert reply.status_code == status, reply.text
    (error,) = reply.json().values()
    assert "\n" not in error and "Traceback" not in error and "/tmp" not in error and "mgcap-serve" not in error


def test_bad_requests_are_turned_away(start: Start, image: Path) -> None:
    url = start(max_megabytes=0.1, timeout=0.7)
    assert httpx.post(f"{url}/api/predict").status_code == 422
    malformed = {"content-type": "multipart/form-data; boundary=x"}
    assert httpx.post(f"{url}/api/predict", headers=malformed, content=b"--y\r\ngarbage").status_code in (400, 422)
    assert httpx.post(f"{url}/api/predict", data={"model": "none"}, **_sent(image)).status_code == 404
    assert httpx.get(f"{url}/api/none").status_code == 404
    assert httpx.get(f"{url}/static/../app.py").status_code == 404
    assert httpx.get(f"{url}/static/%2e%2e/app.py").status_code == 404
    assert httpx.delete(f"{url}/api/predict").status_code == 405
    declared = httpx.post(f"{url}/api/predict", **_sent(b"\xff\xd8\xff" + b"x" * 200_000))
    assert declared.status_code == 413

    def pieces() -> Any:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(30):
            yield b"x" * 10_000

    chunked = httpx.post(f"{url}/api/predict", headers=malformed, content=pieces())
    assert chunked.status_code == 413
    assert chunked.json()["error"] == "uploads may have 0.1 MB"


def test_a_slow_client_is_cut_off_and_frees_its_place(start: Start, image: Path) -> None:
    url = start(timeout=1.5, queue=1)
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(
            b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
            b"Content-Length: 5000\r\n\r\n--x"
        )
        time.sleep(0.3)
        busy = httpx.post(f"{url}/api/predict", **_sent(image))
        assert busy.status_code == 503
        assert busy.headers["retry-after"]
        slow.settimeout(5)
        assert b" 408 " in slow.recv(1000).splitlines()[0]
    assert httpx.post(f"{url}/api/predict", **_sent(image)).status_code == 200


def test_a_client_that_goes_frees_its_place(start: Start, image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    real = Compute._predict

    def slowly(self: Compute, batch: Any) -> None:
        held.wait(20)
        real(self, batch)

    monkeypatch.setattr(Compute, "_predict", slowly)
    url = start(queue=1, timeout=30)
    impatient = httpx.Timeout(5, read=0.3)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/api/predict", **_sent(image), timeout=impatient)
    taken = []
    with pytest.raises(httpx.ReadTimeout):  # no answer, so this one waits in the only place
        for _ in range(100):
            taken.append(httpx.post(f"{url}/api/predict", **_sent(image), timeout=impatient).status_code)
            time.sleep(0.1)
    assert set(taken) <= {503}
    held.set()


def test_token(start: Start, image: Path) -> None:
    url = start(token="sesame")
    assert httpx.get(url).status_code == 200
    assert httpx.get(f"{url}/health").status_code == 200
    for path in ("/api/models", "/metrics", "/openapi.json"):
        assert httpx.get(url + path).status_code == 401
        assert httpx.get(url + path, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert httpx.get(url + path, headers={"Authorization": "Bearer sesame"}).status_code == 200
    assert httpx.post(f"{url}/api/predict", **_sent(image)).status_code == 401


def test_rate(start: Start, image: Path) -> None:
    url = start(rate=2)
    codes = [httpx.post(f"{url}/api/predict", **_sent(image)).status_code for _ in range(3)]
    assert codes == [200, 200, 429]
    assert httpx.get(f"{url}/health").status_code == 200
