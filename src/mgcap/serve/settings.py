"""What the service allows."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
#: A site, as browsers name it.
ORIGIN = r"^https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?/?$"
Origin = Annotated[str, Field(pattern=ORIGIN, max_length=300)]


class Settings(BaseModel):
    """Limits of the service.

    Attributes:
        host: Address that the service listens at; requests by this name are answered.
        allow_origins: Sites whose pages may use the service, as ``https://maps.example.org``; requests by these names
            are answered too.
        token: What clients must send, if anything.
        people: Names of people by their tokens, where several share the service.
        proxy_headers: Whether a proxy stands before the service, so that ``X-Forwarded-For`` names the client.
        max_megabytes: Of an upload.
        max_megapixels: Of an image; a larger one is refused before it is decoded.
        max_raster_megapixels: Of a raster to map, which is read by windows.
        max_tiles: Of a map.
        max_tile_megapixels: Of a tile of a map as the model sees it.
        decode_timeout: Seconds that the decoder of an image may take.
        raster_decode_timeout: Seconds that the decoder of a raster may take.
        timeout: Seconds to send a request in, and seconds to wait for its answer.
        map_timeout: Seconds to wait for a map.
        queue: Requests under way at once; more get 503.
        rate: Requests that one client may make in a minute, 0 for any number; more get 429.
        kept_maps: Finished maps that can be downloaded; the oldest go first.
    """

    model_config = ConfigDict(frozen=True)

    host: str = "127.0.0.1"
    allow_origins: tuple[Origin, ...] = ()
    token: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    people: dict[Annotated[str, Field(min_length=1, max_length=1000)], str] = Field(default_factory=dict)
    proxy_headers: bool = False
    max_megabytes: Positive = 128.0
    max_megapixels: Positive = 25.0
    max_raster_megapixels: Positive = 400.0
    max_tiles: Count = 4000
    max_tile_megapixels: Positive = 2.0
    decode_timeout: Positive = 20.0
    raster_decode_timeout: Positive = 300.0
    timeout: Positive = 60.0
    map_timeout: Positive = 900.0
    queue: Count = 64
    rate: Annotated[int, Field(ge=0)] = 0
    kept_maps: Count = 20

    @property
    def max_bytes(self) -> int:
        """Of an upload."""
        return int(1e6 * self.max_megabytes)
