"""The counting expert: predicts the next character from counts of the training text's n-grams."""
