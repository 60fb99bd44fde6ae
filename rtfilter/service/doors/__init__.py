"""Doors: how the world talks to the pipeline."""
