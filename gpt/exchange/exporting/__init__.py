"""Models of gptx become files of other programs."""
