"""Images, folders, the catalogue of public datasets, splits and synthetic scenes."""
