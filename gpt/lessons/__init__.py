"""Lessons: how attention works, and one's own model step by step."""
