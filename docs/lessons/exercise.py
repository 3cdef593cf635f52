# %% [markdown]
# # Exercise: write attention yourself
#
# You write the attention of a GPT: four short functions. A checker compares their results with the
# attention of gptx itself (`gpt.model`). If the numbers differ, the checker tries typical mistakes,
# and names the mistake that gives exactly your numbers.

# %%
import torch

import gpt
from gpt.model.attention import MultiHeadAttention

B, T, C, H = 2, 6, 32, 4  # texts, characters, n_embd, heads
D = C // H  # head_size
causal = torch.ones(T, T, dtype=torch.bool).tril()  # (T, T), True on and below the diagonal


# %% [markdown]
# ## The four gaps
# Replace each `raise NotImplementedError` by your code. One line is enough for each.


# %%
def scores(q, k):
    """Gap 1: q · kᵀ / √D. Row i belongs to query i. Both (B, T, D) -> (B, T, T)"""
    raise NotImplementedError


def weights(scores):
    """Gap 2: −∞ where `causal` is False, then softmax of each row. (B, T, T) -> (B, T, T)"""
    raise NotImplementedError


def context(weights, v, dropout):
    """Gap 3: dropout of the weights, times the values. (B, T, T), (B, T, D) -> (B, T, D)"""
    raise NotImplementedError


def join(contexts, proj):
    """Gap 4: the heads side by side, then nn.Linear proj. A list of (B, T, D) -> (B, T, C)"""
    raise NotImplementedError


# %% [markdown]
# ## The checker
# `attention` computes all heads with the four functions and the matrices of a model of gptx.
# `twice` calls it in both modes of a torch module: `eval`, without dropout, and `train`, with
# dropout.
#
# **Guess 1.** In one gap, a mistake gives right numbers in `eval` and wrong numbers in `train`. In
# which gap?
# <details><summary>Answer</summary>
# Gap 3, if dropout is forgotten. In `eval`, dropout changes nothing.
# </details>
#
# **Guess 2.** If we divide by $\sqrt{C}$ in place of $\sqrt{D}$, do the weights become more equal
# or less equal?
# <details><summary>Answer</summary>
# More equal: the scores are too small by the factor $\sqrt{H} = 2$.
# </details>
#
# **Guess 3.** A wrong mask lets a query see the next character. Does the training loss rise or
# fall?
# <details><summary>Answer</summary>
# It falls far, and that is the danger: the model copies the character that it must predict. When
# the model writes a text, there is no next character to copy, and the text is nonsense.
# </details>

# %%
torch.manual_seed(0)
config = gpt.ModelConfig(vocab_size=1, block_size=T, n_embd=C, n_head=H, dropout=0.2)
model = MultiHeadAttention(config).double()
for head in model.heads:
    head.dropout.p = 0.5  # the share of the weights that dropout sets to 0 in training
    head.query.weight.data *= 4  # larger scores, so that the weights are not all alike
x = torch.randn(B, T, C, dtype=torch.float64)  # (B, T, C)


def attention(scores, weights, context, join):
    """Returns the attention of x with these functions and the model's matrices: (B, T, C)"""
    contexts = []
    for head in model.heads:
        q, k, v = head.query(x), head.key(x), head.value(x)  # (B, T, D) each
        contexts.append(context(weights(scores(q, k)), v, head.dropout))  # (B, T, D)
    return model.dropout(join(contexts, model.proj))


def twice(forward):
    """Returns the results of forward() in eval and in train, with the same seed: (2, B, T, C)"""
    results = []
    for training in (False, True):
        model.train(training)
        torch.manual_seed(1)
        results.append(forward())
    return torch.stack(results).detach()


expected = twice(lambda: model(x, lambda q, k: (q, k)))  # (2, B, T, C), by gpt.model; no positions
print(f"first text, first 6 columns, by gpt.model (T, 6)\n{expected[0, 0, :, :6]}")

# %% [markdown]
# The next cell has the solution and the typical mistakes, each with advice. **Read it later.** To
# check one gap, the checker takes the other three functions from the solution.


# %% jupyter={"source_hidden": true} tags=["hide-input"]
def masked(scores, allowed, dim=-1):
    return scores.masked_fill(~allowed, -torch.inf).softmax(dim)


solution = {
    "scores": lambda q, k: q @ k.mT / D**0.5,
    "weights": lambda scores: masked(scores, causal),
    "context": lambda weights, v, dropout: dropout(weights) @ v,
    "join": lambda contexts, proj: proj(torch.cat(contexts, dim=-1)),
}
mistakes = {  # gap -> the mistake's name, what to do -> code with the mistake
    "scores": {
        "scaled by n_embd: weights too equal; take √D": lambda q, k: q @ k.mT / C**0.5,
        "no scale: one weight is nearly 1; divide by √D": lambda q, k: q @ k.mT,
        "queries and keys exchanged: a row must be a query": lambda q, k: k @ q.mT / D**0.5,
    },
    "weights": {
        "mask off by one: shows the next character, the answer": (
            lambda s: masked(s, torch.ones_like(causal).tril(1))
        ),
        "mask after softmax: rows sum to less than 1": lambda s: s.softmax(dim=-1) * causal,
        "masked with 0: e⁰ is 1, so take −∞": lambda s: (s * causal).softmax(dim=-1),
        "softmax over the wrong axis: columns sum to 1": lambda s: masked(s, causal, dim=-2),
    },
    "context": {"no dropout: take dropout(weights)": lambda weights, v, dropout: weights @ v},
    "join": {
        "heads split the wrong way: take torch.cat with dim=-1": (
            lambda contexts, proj: proj(torch.stack(contexts, dim=1).reshape(B, T, C))
        ),
        "no projection: take proj(…)": lambda contexts, proj: torch.cat(contexts, dim=-1),
    },
}


def check(gap, function):
    """Returns one line: whether a function for this gap is right, or which mistake it has."""
    try:
        result = twice(lambda: attention(**solution | {gap: function}))
    except NotImplementedError:
        return f"{gap}: still empty"
    if result.shape != expected.shape:
        return f"{gap}: the result has the shape {tuple(result.shape[1:])}"
    if torch.allclose(result, expected, equal_nan=True):
        return f"{gap}: right, equal to gpt.model"
    for name, mistake in mistakes[gap].items():
        wrong = twice(lambda mistake=mistake: attention(**solution | {gap: mistake}))
        if torch.allclose(result, wrong, equal_nan=True):
            return f"{gap}: {name}"
    return f"{gap}: differs by up to {(result - expected).abs().max():.4f}, by an unknown mistake"


# %% [markdown]
# ## Check your gaps
# Fill a gap, run its cell, then run this one again.

# %%
for gap, function in zip(solution, (scores, weights, context, join), strict=True):
    print(check(gap, function))

# %% [markdown]
# This cell tests the checker: it names every mistake, and accepts the solution.

# %%
for gap, versions in mistakes.items():
    for name, mistake in versions.items():
        assert check(gap, mistake) == f"{gap}: {name}"
    assert check(gap, solution[gap]) == f"{gap}: right, equal to gpt.model"
