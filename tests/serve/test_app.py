from __future__ import annotations

import contextlib
import io
import logging
import socket
import struct
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import rasterio
from PIL import Image
from rasterio.transform import from_origin
from starlette.testclient import TestClient

from mgcap.classifier import SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.serve import connections, guard
from mgcap.serve.app import create_app
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
        assert found["name"] == found["class"].replace("_", " ") == found["top"][0]["name"]


@pytest.mark.parametrize("job", ["predict", "explain"])
def test_what_the_model_does_not_know_is_unknown(start: Start, scenes: Path, model_files: list[Path], job: str) -> None:
    url, own = start(), SceneClassifier.load(model_files[0], engine="torch")
    images = open_folder(scenes).paths[::8]
    said, seen = own.predict_readable(images, on_error=None, keep=False), set()
    assert said.distances is not None
    for image, probabilities, distance in zip(images, said.probabilities, said.distances, strict=True):
        for alpha in (0.0, 0.01, 0.9):
            data = {"unknown": str(alpha)} if alpha else {}
            found = httpx.post(f"{url}/api/{job}", data=data, **_sent(image), timeout=30).json()
            limits = own.limits(alpha)
            unknown = bool(distance > limits.distance or probabilities.max() < limits.confidence)
            likely = own.classes_[probabilities.argmax()]
            assert found["distance"] == pytest.approx(distance, abs=1e-4)
            given = limits._asdict() if alpha else {"distance": None, "confidence": None}
            assert found["limits"] == pytest.approx(given, abs=1e-5)
            assert (found["unknown"], found["class"]) == (unknown, "unknown" if unknown else likely)
            assert found["top"][0]["class"] == likely
            seen.add((alpha, unknown))
    assert {(0.0, False), (0.9, True)} <= seen and (0.0, True) not in seen
    for wrong in ("1", "-0.1", "nan", "much"):
        assert httpx.post(f"{url}/api/{job}", data={"unknown": wrong}, **_sent(images[0])).status_code == 422


def test_a_model_that_does_not_know_says_so(model_files: list[Path], image: Path) -> None:
    """It neither has a sample nor held an image out."""
    own = SceneClassifier.load(model_files[0], engine="torch")
    own.sample_, own.metrics_ = None, {}
    app = create_app({"first": (model_files[0], own)})
    with TestClient(app, "http://127.0.0.1") as client:
        assert client.get("/api/models").json()[0]["limits"] is None
        found = client.post("/api/predict", **_sent(image)).json()
        assert found["distance"] is None and not found["unknown"]
        refused = client.post("/api/predict", data={"unknown": "0.01"}, **_sent(image))
        assert refused.status_code == 400 and "knows no held-out confidence" in refused.json()["error"]


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
    assert found["notes"] == []  # an RGB raster says which bands are which
    assert sum(entry["share"] for entry in found["legend"]) == pytest.approx(1)
    assert {"class", "name"} <= set(found["legend"][0])
    assert found["legend"][-1]["class"] == "unknown" and found["shift"]["known"] == pytest.approx(1)
    assert len(found["distances"]) == 2 and max(found["distances"]) < found["limits"]["distance"]
    package = httpx.get(url + found["downloads"]["landuse.gpkg"])
    assert package.content.startswith(b"SQLite format 3")
    for name in ("upload.tif", "..%2Fupload.tif", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "none.gpkg"):
        assert httpx.get(f"{url}/api/maps/{found['id']}/{name}").status_code == 404
    again = httpx.post(f"{url}/api/map", data={"overlap": "0.5"}, **_sent(raster), timeout=30).json()
    assert again["columns"] == 4
    assert httpx.get(url + found["downloads"]["landuse.gpkg"]).status_code == 404  # only one map is kept
    assert httpx.post(f"{url}/api/map", **_sent(image)).status_code == 415
    plain = httpx.post(f"{url}/api/map", data={"unknown": "0"}, **_sent(raster), timeout=30).json()
    assert plain["shift"] is None and plain["limits"] == {"distance": None, "confidence": None}
    found = httpx.post(f"{url}/api/map", data={"unknown": "0.9"}, **_sent(raster), timeout=30).json()
    assert len(found["legend"]) == len(plain["legend"]) + 1 and found["distances"] == plain["distances"]
    far = np.array(plain["distances"]) > found["limits"]["distance"]
    unknown = far | (np.array(plain["probabilities"]) < found["limits"]["confidence"])
    assert [cell == len(plain["legend"]) for cell in found["cells"]] == unknown.tolist() and unknown.any()
    assert [p is None for p in found["probabilities"]] == unknown.tolist()
    shares = {"known": 1 - unknown.mean(), "far": far.mean(), "unsure": (unknown & ~far).mean()}
    assert found["shift"] == pytest.approx(shares)
    assert found["legend"][-1]["share"] == pytest.approx(unknown.mean())
    bad = httpx.post(f"{url}/api/map", data={"scale": "dark"}, **_sent(raster))
    assert bad.status_code == 400
    assert "scale takes" in bad.json()["error"]


def test_a_map_says_which_bands_were_guessed(start: Start, image: Path, tmp_path: Path) -> None:
    raster, url = tmp_path / "r.tif", start()
    pixels = np.moveaxis(np.asarray(Image.open(image)), -1, 0)
    size = {"count": 4, "height": 64, "width": 64, "dtype": "uint8", "photometric": "minisblack", "alpha": "no"}
    with rasterio.open(raster, "w", driver="GTiff", **size) as dataset:
        dataset.write(np.concatenate((pixels, pixels[:1])))
    (note,) = httpx.post(f"{url}/api/map", **_sent(raster), timeout=30).json()["notes"]
    assert note == (
        "The raster does not say which of its 4 bands are red, green and blue; bands 1, 2, 3 are taken in this order. "
        "If the map looks wrong, name the bands, as 3,2,1."
    )
    named = httpx.post(f"{url}/api/map", data={"bands": "3,2,1"}, **_sent(raster), timeout=30).json()
    assert named["notes"] == []


def test_too_many_tiles_are_refused(start: Start, image: Path, tmp_path: Path) -> None:
    raster = tmp_path / "r.tif"
    with rasterio.open(raster, "w", driver="GTiff", count=3, height=64, width=64 * 9, dtype="uint8") as dataset:
        dataset.write(np.zeros((3, 64, 64 * 9), np.uint8))
    refused = httpx.post(f"{start(max_tiles=8)}/api/map", **_sent(raster))
    assert refused.status_code == 400
    assert refused.json()["error"] == "the map would have 9 tiles; 8 are allowed"
    url = start(max_tile_megapixels=0.01)
    refused = httpx.post(f"{url}/api/map", **_sent(raster), data={"tile": "160px"})
    assert refused.status_code == 400 and "over the limit of 10,000 pixels" in refused.json()["error"]


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
def test_bad_files_are_refused_in_one_sentence(start: Start, content: bytes, status: int) -> None:
    url = start(max_megapixels=1)
    reply = httpx.post(f"{url}/api/predict", **_sent(content, "../../etc/passwd.svg"))
    assert reply.status_code == status, reply.text
    (error,) = reply.json().values()
    assert "\n" not in error and "Traceback" not in error and "/tmp" not in error and "mgcap-serve" not in error


def test_bad_requests_are_refused(start: Start, image: Path) -> None:
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


def test_one_bad_item_never_fails_another(start: Start, image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is asked again one by one when it fails as a whole, whatever the reason."""
    real = SceneClassifier.predict_readable

    def crafted(self: SceneClassifier, images: Any, **options: Any) -> Any:
        if any(item.shape[0] == 61 for item in images):
            raise ZeroDivisionError("crafted")
        return real(self, images, **options)

    monkeypatch.setattr(SceneClassifier, "predict_readable", crafted)
    url = start()
    buffer = io.BytesIO()
    Image.new("RGB", (61, 61)).save(buffer, "PNG")
    contents = [image.read_bytes(), buffer.getvalue()] * 12
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(24) as pool:
        replies = list(pool.map(lambda content: client.post(f"{url}/api/predict", **_sent(content)), contents))
    assert [reply.status_code for reply in replies] == [200, 500] * 12
    assert replies[1].json() == {"error": "something went wrong on our side"}
    for header in ("content-security-policy", "x-frame-options", "x-content-type-options", "cache-control"):
        assert header in replies[1].headers
    assert 'mgcap_requests_total{path="/api/predict",status="500"} 12.0' in httpx.get(f"{url}/metrics").text


def test_what_is_no_http_is_answered_safely_and_counted(start: Start) -> None:
    url = start()
    host, port = url.removeprefix("http://").split(":")
    for nonsense in (
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=5) as own:
            own.sendall(nonsense)
            reply = own.recv(2000)
        assert b" 400 " in reply.splitlines()[0]
        assert b"x-frame-options: DENY" in reply
    assert 'mgcap_requests_total{path="other",status="400"} 3.0' in httpx.get(f"{url}/metrics").text


def test_numbers_have_ranges(start: Start) -> None:
    url = start()
    wrong = [
        {"tile": "9999999999999999999"}, {"tile": "9" * 20}, {"tile": "0"}, {"tile": "-5"}, {"tile": "1e9"},
        {"overlap": "nan"}, {"overlap": "inf"}, {"overlap": "1"}, {"bands": "0"}, {"bands": "99999,1,1"},
        {"scale": "nan,1"}, {"scale": "0,1e400"}, {"scale": "-1e300,1e300"},
    ]  # fmt: skip
    for values in wrong:
        refused = httpx.post(f"{url}/api/map", data=values, **_sent(b"II*\x00", "r.tif"))
        assert refused.status_code == 422, (values, refused.text)
        assert "\n" not in refused.json()["error"]


def test_a_raster_cannot_make_the_service_read_a_file(start: Start, tmp_path: Path) -> None:
    secret, evil = tmp_path / "secret.tif", tmp_path / "evil.tif"
    for path, value in ((secret, 200), (evil, 10)):
        with rasterio.open(path, "w", driver="GTiff", count=3, height=64, width=64, dtype="uint8") as dataset:
            dataset.write(np.full((3, 64, 64), value, np.uint8))
            if path == evil:
                dataset.update_tags(ns="OVERVIEWS", OVERVIEW_FILE=str(secret))
    refused = httpx.post(f"{start()}/api/map", **_sent(evil), timeout=30)
    assert refused.status_code == 400
    assert "names another file" in refused.json()["error"]
    assert str(tmp_path) not in refused.text and "mgcap-serve" not in refused.text


def test_a_body_that_trickles_is_cut_off(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "PATIENCE", 1.0)
    url = start(timeout=30)
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as slow:
        slow.sendall(
            b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
            b"Content-Length: 50000\r\n\r\n"
        )
        began = time.perf_counter()
        for _ in range(20):
            try:
                slow.sendall(b"--x")
                time.sleep(0.2)
            except OSError:
                break
        assert b" 408 " in slow.recv(1000).splitlines()[0]
    assert time.perf_counter() - began < 10


def test_a_head_that_never_ends_is_cut_off(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    host, port = start().removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        with contextlib.suppress(OSError):
            for _ in range(8):
                slow.sendall(b"X: y\r\n")
                time.sleep(0.2)
        with pytest.raises(OSError):
            for _ in range(3):
                slow.sendall(b"X: y\r\n")
                time.sleep(0.1)


def test_logs_are_bounded() -> None:
    few = connections.FewLines(5)
    record = logging.LogRecord("x", logging.WARNING, "", 0, "%s", ("bad",), None)
    assert sum(few.filter(record) for _ in range(100)) == 5
    few.start -= 61
    assert few.filter(record)
    assert record.getMessage() == "bad (95 messages before this one were not written)"


def test_a_form_has_one_file_and_a_few_short_values(start: Start, image: Path) -> None:
    where = f"{start()}/api/predict"
    file = ("a.png", image.read_bytes(), "image/png")
    assert httpx.post(where, files=[("file", file)] * 2).status_code == 400
    assert httpx.post(where, files={"file": file}, data={f"x{k}": "1" for k in range(9)}).status_code == 400
    assert httpx.post(where, files={"file": file}, data={"model": "m" * 2000}).status_code == 400
    assert httpx.post(where, files={"file": file}).status_code == 200


def test_a_jpeg_of_many_scans_is_refused(start: Start) -> None:
    crafted = b"\xff\xd8\xff" + b"\xff\xda\x00" * 200
    refused = httpx.post(f"{start()}/api/predict", files={"file": ("a.jpg", crafted, "image/jpeg")})
    assert refused.status_code == 400 and "a JPEG of more than 100 scans" in refused.json()["error"]
