"""What Python and the commands ask of gptx: opens models, evaluates texts, lists runs."""
