"""Measures and explains attention heads, and checks every number. No torch."""
