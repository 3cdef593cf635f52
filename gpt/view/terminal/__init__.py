"""Text views for the terminal."""
