"""Draws figures as SVG, PNG and PDF with matplotlib."""
