"""A trained GPT with its vocabulary: the interface for commands, notebooks and views."""

from gpt.trained.trained_gpt import TrainedGPT as TrainedGPT
