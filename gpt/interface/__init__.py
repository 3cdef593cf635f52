"""What both Python and the commands call: opens models, evaluates texts, lists runs."""
