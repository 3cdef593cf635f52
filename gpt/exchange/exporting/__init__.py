"""Exports models of gptx as files for other programs."""
