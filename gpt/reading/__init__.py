"""Runs a trained GPT in numpy, without torch: predicts, samples, scores texts, finds copies."""
