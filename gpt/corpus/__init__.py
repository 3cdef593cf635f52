"""Text to ids to windows. Imports no torch."""
