"""Measures and explains attention heads, without torch, and checks the numbers."""
