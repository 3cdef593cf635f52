"""The GPT in torch: ids -> logits. Text, files and training are elsewhere."""

from gpt.model.gpt import GPT
from gpt.model.initial import initialise, start_from

__all__ = ["GPT", "initialise", "start_from"]
