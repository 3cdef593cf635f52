"""How a GPT learns, in torch: corpus, optimizer, checkpoints, and a trainer that yields events."""
