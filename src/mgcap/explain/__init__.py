"""Why a scene was called what it was called: canonical appearances and the regions that are evidence for a class."""
