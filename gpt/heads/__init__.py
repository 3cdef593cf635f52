"""What attention heads do, and the proof of every number. Knows no torch."""
