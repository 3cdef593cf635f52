"""Targets that a trained encoder–decoder writes for sources, and their scores. No torch."""
