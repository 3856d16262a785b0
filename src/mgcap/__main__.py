"""``python -m mgcap``."""

from mgcap.cli import main

main()
