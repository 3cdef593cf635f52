"""What lasts: files, model files, manifests, runs. Knows no torch."""
