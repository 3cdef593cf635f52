"""Lessons: how attention works, and a user's own model step by step."""
