"""Draws results in terminals, notebooks and figures, and writes them for programs."""
