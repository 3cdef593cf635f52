"""A trained GPT in numpy: its forward, sampling, score and novelty. No torch."""
