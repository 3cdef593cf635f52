"""Makes the HTML page of a model."""
