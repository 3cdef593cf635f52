"""The counting expert: what the n-grams of the training text say about the next character."""
