"""Imports models from other programs, and exports models for other programs."""
