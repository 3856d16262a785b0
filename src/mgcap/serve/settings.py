"""What the service allows."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseModel):
    """Limits of the service.

    Attributes:
        token: What clients must send, if anything.
        max_megabytes: Of an upload.
        max_megapixels: Of an image; a larger one is refused before it is decoded.
        max_raster_megapixels: Of a raster to map, which is read by windows.
        max_tiles: Of a map.
        timeout: Seconds to send a request in, and seconds to wait for its answer.
        map_timeout: Seconds to wait for a map.
        queue: Requests under way at once; more get 503.
        rate: Requests that one client may make in a minute, 0 for any number; more get 429.
        kept_maps: Finished maps that can be downloaded; the oldest go first.
    """

    model_config = ConfigDict(frozen=True)

    token: str | None = None
    max_megabytes: Positive = 64.0
    max_megapixels: Positive = 25.0
    max_raster_megapixels: Positive = 400.0
    max_tiles: Count = 4000
    timeout: Positive = 60.0
    map_timeout: Positive = 900.0
    queue: Count = 64
    rate: Annotated[int, Field(ge=0)] = 0
    kept_maps: Count = 20

    @property
    def max_bytes(self) -> int:
        """Of an upload."""
        return int(1e6 * self.max_megabytes)
