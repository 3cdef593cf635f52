"""Exercises that a student fills in, and what compares them with the right numbers."""
