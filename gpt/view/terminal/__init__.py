"""Shows results as text in a terminal."""
