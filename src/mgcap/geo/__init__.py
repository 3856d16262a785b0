"""GeoTIFF to georeferenced class maps."""
