"""What a GPT is, in torch: ids in, logits out. Knows no text, no files and no training."""

from gpt.model.gpt import GPT, initialise

__all__ = ["GPT", "initialise"]
