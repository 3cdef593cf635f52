"""JSON, CSV, NPZ and Markdown."""
