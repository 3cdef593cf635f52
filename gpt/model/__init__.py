"""The GPT in torch: ids -> logits. Knows no text, no files and no training."""

from gpt.model.gpt import GPT, initialise, start_from

__all__ = ["GPT", "initialise", "start_from"]
