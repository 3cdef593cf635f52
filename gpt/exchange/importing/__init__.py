"""Models of other programs become runs of gptx."""
