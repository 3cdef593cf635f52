"""The GPT in torch: ids -> logits. Text, files and training are elsewhere."""

from gpt.model.gpt import GPT, initialise

__all__ = ["GPT", "initialise"]
