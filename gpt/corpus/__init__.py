"""Turns text into ids, and ids into windows. Imports no torch."""
