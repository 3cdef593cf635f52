"""The GPT in torch, from ids to logits. It knows no text, no files and no training."""

from gpt.model.gpt import GPT, copy_weights, initialise

__all__ = ["GPT", "copy_weights", "initialise"]
