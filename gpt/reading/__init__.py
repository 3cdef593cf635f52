"""What a trained GPT does, in numpy: the model again, its characters, its attention. No torch."""
