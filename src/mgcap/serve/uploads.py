"""An upload to a file of ours, of a known kind by its first bytes; what is in it is read by child processes alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import UploadFile

from mgcap.serve.decoders import LargeImageError
from mgcap.serve.refusals import Refusal
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.serve.service import Service


#: First bytes of the kinds of files that are taken, with the suffix we give them and Pillow's name.
_KINDS = (
    (b"\xff\xd8\xff", ".jpg", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", ".png", "PNG"),
    (b"II*\x00", ".tif", "TIFF"),
    (b"MM\x00*", ".tif", "TIFF"),
    (b"II+\x00", ".tif", "TIFF"),
    (b"MM\x00+", ".tif", "TIFF"),
)
_BLOCK = 1 << 20
#: Scans of a progressive JPEG: encoders write about ten, and each costs as much time as a whole image.
MAX_SCANS = 100
#: Seconds for an image that is decoded at once, being small.
SMALL_SECONDS = 5.0


class _FewParts(Request):
    """A request whose form is one file and a few short values: parts are kept in memory, and longer ones in files."""

    def form(self, **_: Any) -> Any:
        return super().form(max_files=1, max_fields=8, max_part_size=1024)


class UploadRoute(APIRoute):
    """A route that takes small forms only."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See :class:`fastapi.routing.APIRoute`."""
        handler = super().get_route_handler()

        async def limited(request: Request) -> Response:
            return await handler(_FewParts(request.scope, request.receive))

        return limited


def _kind(first: bytes) -> tuple[str, str]:
    if first[:4] == b"RIFF" and first[8:12] == b"WEBP":
        return ".webp", "WEBP"
    for start, suffix, name in _KINDS:
        if first.startswith(start):
            return suffix, name
    raise Refusal(415, "only JPEG, PNG, WebP and TIFF images are taken")


async def save_upload(upload: UploadFile, folder: Path) -> tuple[Path, str]:
    """Write an upload into a folder of its own; returns the file and Pillow's name of its format."""
    first = await upload.read(_BLOCK)
    if not first:
        raise Refusal(400, "the file is empty")
    suffix, name = _kind(first)
    path = folder / f"upload{suffix}"
    scans = 0
    with path.open("wb") as file:
        while first:
            scans += first.count(b"\xff\xda")
            if name == "JPEG" and scans > MAX_SCANS:
                raise Refusal(400, f"the file is a JPEG of more than {MAX_SCANS} scans")
            file.write(first)
            first = await upload.read(_BLOCK)
    return path, name


@asynccontextmanager
async def uploaded_pixels(service: Service, upload: UploadFile, folder: Path) -> AsyncIterator[Array]:
    """The pixels of an uploaded image; a large one waits until there is room for it."""
    path, form = await save_upload(upload, folder)
    limit, seconds = int(1e6 * service.settings.max_megapixels), service.settings.decode_timeout

    def decode(accounted: bool) -> Array:
        own = seconds if accounted else min(seconds, SMALL_SECONDS)
        return service.decoders.image(path, form, limit, own, accounted)

    try:
        yield await service.in_decoder_thread(decode, False)
        return
    except LargeImageError as large:
        pixels = large.pixels
    async with service.budget.take(pixels):
        yield await service.in_decoder_thread(decode, True)


async def plain_raster(
    service: Service, upload: UploadFile, folder: Path, bands: Sequence[int] | None
) -> tuple[Path, list[str]]:
    """A plain copy of an uploaded raster, for the map, and what was assumed of it."""
    path, form = await save_upload(upload, folder)
    if form != "TIFF":
        raise Refusal(415, "only (Geo)TIFF rasters can be mapped")
    target = folder / "plain.tif"
    limit = int(1e6 * service.settings.max_raster_megapixels)
    copy = partial(service.decoders.raster, path, target, bands, limit, service.settings.raster_decode_timeout)
    notes = await asyncio.get_running_loop().run_in_executor(service.copy_thread, copy)
    path.unlink()
    return target, notes
