"""Stored data: files, model files, manifests, runs. Imports no torch."""
