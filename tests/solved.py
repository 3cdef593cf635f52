"""The exercise `attention`, filled in; its code is not that of gpt/lessons/exercises."""

from __future__ import annotations

import re
from pathlib import Path

import gpt

UNFILLED = (Path(gpt.__file__).parent / "lessons/exercises/attention.py").read_text("utf-8")
GAP = re.compile(r"^ +raise NotImplementedError\(.*\)$", re.MULTILINE)

#: The lines of each gap, by its place, in the order of the file.
CODE = {
    "Head.scores": """
        queries, keys = self.query(x), self.key(x)
        return queries @ keys.transpose(-2, -1) * queries.shape[-1] ** -0.5""",
    "Head.weights": """
        T = scores.shape[-1]
        hidden = scores.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return F.softmax(hidden, dim=-1)""",
    "Head.forward": """
        weights = self.dropout(self.weights(self.scores(x)))
        return weights @ self.value(x)""",
    "MultiHeadAttention.forward": """
        out = torch.cat([head(x) for head in self.heads], dim=-1)
        out = self.proj(out)
        return self.dropout(out)""",
    "FeedForward.forward": """
        wide = F.relu(self.up(x))
        return self.dropout(self.down(wide))""",
    "Block.forward": """
        x = x + self.attention(self.norm1(x))
        x = x + self.feed_forward(self.norm2(x))
        return x""",
    "GPT.embed": """
        tokens = self.token_embedding(ids)
        positions = self.position_embedding(torch.arange(ids.shape[1]))
        return self.dropout(tokens + positions)""",
    "loss": """
    V = logits.shape[-1]
    before, after = logits[:, :-1], ids[:, 1:]
    return F.cross_entropy(before.reshape(-1, V), after.reshape(-1))""",
    "probabilities": """
    logits = logits / temperature
    if top_k is not None:
        least = logits.topk(top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    return F.softmax(logits, dim=-1)""",
    "draw": """
    return torch.multinomial(chances, 1)""",
}


def filled(**other: str) -> str:
    """The file with the right code, and other code in some gaps: {"Head.scores": "…"}."""
    code = iter((CODE | other).values())
    return GAP.sub(lambda _: next(code).removeprefix("\n"), UNFILLED)


def changed(place: str, old: str, new: str) -> str:
    """The file with one change of the right code of a gap."""
    assert CODE[place].count(old) == 1
    return filled(**{place: CODE[place].replace(old, new)})
