"""Text to ids to windows. Knows no torch."""
