"""Reads and writes stored data: model files, manifests, runs. No module here imports torch."""
