"""The GPT in torch: ids -> logits. Text, files and training are elsewhere."""

from gpt.model.gpt import GPT
from gpt.model.initial import initialise

__all__ = ["GPT", "initialise"]
