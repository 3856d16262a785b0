"""Training: the exact head on frozen descriptors."""
