"""Trains a GPT with torch: plans, optimizers, checkpoints, and a trainer that yields events."""
