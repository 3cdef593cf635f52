"""Models from other programs, and for other programs."""
