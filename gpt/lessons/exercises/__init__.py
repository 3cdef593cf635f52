"""Exercises that a student fills in, and the code that compares them with the right numbers."""
