"""Teaching a model one's own classes on one's own rasters: cells, labels, what to label next."""
