"""Attention, rung by rung: readable modules, the steps from each to the next, and their lessons."""
