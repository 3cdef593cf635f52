"""Imports models of other programs as runs of gptx."""
