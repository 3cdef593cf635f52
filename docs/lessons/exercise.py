# %% [markdown]
# # Exercise: write attention yourself
#
# You write the attention of a GPT: four short functions. A check compares them with the attention
# of `gptx` itself (`gpt.model`). If the numbers differ, it looks for the typical slip that gives
# exactly your numbers, and names it.
#
# Names: `B` texts, `T` characters, `C` = n_embd columns, `H` heads, `D` = head_size = `C // H`.

# %%
import math

import torch
import torch.nn.functional as F

import gpt
from gpt.model.attention import MultiHeadAttention

B, T, C, H = 2, 6, 32, 4
D = C // H
assert D == 8  # a head has its share of the columns, not all of them
causal = torch.ones(T, T, dtype=torch.bool).tril()  # (T, T), True on and below the diagonal


def show(name, table):
    """Prints a table with its name and shape, four digits."""
    print(f"\n{name} {tuple(table.shape)}")
    for row in table.tolist():
        print(" ".join(f"{number:8.4f}" for number in row))


# %% [markdown]
# ## The four gaps
# Replace each `raise NotImplementedError` by your code. One line is enough for each.
#
# **Guess 1.** Two random vectors of $D$ numbers, each with variance 1. What is the standard
# deviation of their product $q \cdot k$?
# <details><summary>Answer</summary>
# $\sqrt{D}$: the product is a sum of $D$ terms with variance 1, so its variance is $D$. That is why
# attention divides by $\sqrt{D}$.
# </details>


# %%
def scores(q, k):
    """Gap 1: q · kᵀ / √D. Row i belongs to query i. Two (B, T, D) -> (B, T, T)"""
    raise NotImplementedError


def weights(scores):
    """Gap 2: −∞ where `causal` is False, then softmax of each row. (B, T, T) -> (B, T, T)"""
    raise NotImplementedError


def context(weights, v, dropout):
    """Gap 3: nn.Dropout of the weights, times the values. (B, T, T), (B, T, D) -> (B, T, D)"""
    raise NotImplementedError


def join(contexts, proj):
    """Gap 4: the heads side by side, then nn.Linear proj. A list of (B, T, D) -> (B, T, C)"""
    raise NotImplementedError


# %% [markdown]
# ## The checker
# `attention` computes all heads with four functions and the matrices of a model of `gptx`, so
# right functions give the model's numbers. `twice` does it as the model answers (`eval`), and as it
# trains (`train`), when dropout sets some weights to 0.

# %%
torch.manual_seed(0)
config = gpt.ModelConfig(vocab_size=1, block_size=T, n_embd=C, n_head=H, dropout=0.2)
model = MultiHeadAttention(config).double()
for head in model.heads:
    head.dropout.p = 0.5  # the share of the weights that dropout sets to 0 in training
    head.query.weight.data *= 4  # larger scores, so that the weights are not all alike
x = torch.randn(B, T, C, dtype=torch.float64)  # (B, T, C)


def attention(scores, weights, context, join):
    """(B, T, C): attention of x with these functions and the model's matrices."""
    contexts = []
    for head in model.heads:
        q, k, v = head.query(x), head.key(x), head.value(x)  # (B, T, D) each
        contexts.append(context(weights(scores(q, k)), v, head.dropout))  # (B, T, D)
    return model.dropout(join(contexts, model.proj))


def twice(forward, *functions):
    """forward(*functions) in eval and in train, with equal random numbers: (2, B, T, C)"""
    results = []
    for training in (False, True):
        model.train(training)
        torch.manual_seed(1)
        results.append(forward(*functions))
    return torch.stack(results)


expected = twice(model, x, lambda q, k: (q, k))  # (2, B, T, C), by gpt.model; no positions
show("attention by gpt.model: first text, first 6 columns", expected[0, 0, :, :6])

# %% [markdown]
# The next cell has the solution, and the slips with what to do. **Read it later.** To check one
# gap, the checker takes the other three from the solution.


# %% jupyter={"source_hidden": true} tags=["hide-input"]
def masked(scores, allowed, dim=-1):
    return scores.masked_fill(~allowed, -math.inf).softmax(dim)


after = torch.ones(T, T, dtype=torch.bool).tril(1)  # also the next character
solution = {
    "scores": lambda q, k: q @ k.mT / D**0.5,
    "weights": lambda scores: masked(scores, causal),
    "context": lambda weights, v, dropout: dropout(weights) @ v,
    "join": lambda contexts, proj: proj(torch.cat(contexts, dim=-1)),
}
slips = {  # gap -> the slip's name, what to do -> code with the slip
    "scores": {
        "scaled by n_embd; a score is a sum of D products": lambda q, k: q @ k.mT / C**0.5,
        "no scale; divide by √D": lambda q, k: q @ k.mT,
        "divided by D; take the root": lambda q, k: q @ k.mT / D,
        "queries and keys exchanged; a row belongs to a query": lambda q, k: k @ q.mT / D**0.5,
    },
    "weights": {
        "no causal mask; later keys need the score −∞": lambda s: s.softmax(dim=-1),
        "mask off by one: hides the character itself": lambda s: masked(s, causal.tril(-1)),
        "mask off by one: shows the next character": lambda s: masked(s, after),
        "mask after softmax; rows must sum to 1": lambda s: s.softmax(dim=-1) * causal,
        "masked with 0; e⁰ is 1, so take −∞": lambda s: (s * causal).softmax(dim=-1),
        "softmax over the wrong axis; a row is dim=-1": lambda s: masked(s, causal, dim=-2),
    },
    "context": {
        "dropout left on; dropout(weights)": lambda w, v, dropout: F.dropout(w, dropout.p) @ v,
        "no dropout; dropout(weights) @ v": lambda w, v, dropout: w @ v,
    },
    "join": {
        "heads split the wrong way; T stands before H, so take torch.cat with dim=-1": (
            lambda heads, proj: proj(torch.stack(heads, dim=1).reshape(B, T, C))
        ),
        "wrong order; head 0 first": lambda heads, proj: proj(torch.cat(heads[::-1], dim=-1)),
        "no projection; proj(...)": lambda heads, proj: torch.cat(heads, dim=-1),
    },
}


def check(gap, function):
    """What is right or wrong with a function for this gap, in one line."""
    try:
        result = twice(attention, *(solution | {gap: function}).values())
    except NotImplementedError:
        return f"{gap}: still empty"
    except Exception as error:
        return f"{gap}: {type(error).__name__}: {error}"
    if result.shape != expected.shape:
        return f"{gap}: the result has the shape {tuple(result.shape[1:])}"
    if torch.allclose(result, expected, equal_nan=True):
        return f"{gap}: right, equal to gpt.model"
    for name, slip in slips[gap].items():
        wrong = twice(attention, *(solution | {gap: slip}).values())
        if torch.allclose(result, wrong, equal_nan=True):
            return f"{gap}: {name}"
    return f"{gap}: differs by up to {(result - expected).abs().max():.4f}, by an unknown slip"


# %% [markdown]
# ## Check your gaps
# Fill a gap, run its cell, then run this one again.

# %%
mine = {"scores": scores, "weights": weights, "context": context, "join": join}
for gap, function in mine.items():
    print(check(gap, function))

# %% [markdown]
# ## What the slips do
# Here are the weights of one head with three slips. Compare the rows.
#
# **Guess 2.** Without the scale, do the weights become more equal or less equal?
# <details><summary>Answer</summary>
# Less equal. Scores are $\sqrt{D} \approx 2.8$ times as large, and softmax gives nearly everything
# to the largest one. There its gradient is nearly 0, so the head learns slowly. With $\sqrt{C}$ in
# place of $\sqrt{D}$, scores are too small by the factor $\sqrt{H} = 2$: the weights are too equal.
# </details>
#
# **Guess 3.** A mask shows the next character. Is the training loss then better or worse?
# <details><summary>Answer</summary>
# Much better, and that is the danger. The model copies what it must predict. When it writes a text,
# there is no next character to copy, and the text is nonsense.
# </details>

# %%
scores0 = model.heads[0].query(x[0]) @ model.heads[0].key(x[0]).mT  # (T, T), without a scale
right = masked(scores0 / D**0.5, causal)  # (T, T)
small = masked(scores0 / C**0.5, causal)
shifted = masked(scores0 / D**0.5, after)
axis = masked(scores0 / D**0.5, causal, dim=-2)
show("weights, right", right)
show("weights, scaled by n_embd", small)
show("weights, mask shows the next character", shifted)
show("weights, softmax over the wrong axis", axis)
assert small[-1].max() < right[-1].max() < masked(scores0, causal)[-1].max()
assert shifted[0, 1] > 0  # character 0 sees character 1
assert torch.allclose(right.sum(dim=1), torch.ones(T).double())
assert torch.allclose(axis.sum(dim=0), torch.ones(T).double())  # columns sum to 1, not rows

# %% [markdown]
# ## Does the checker know each slip?
# Each wrong version goes through `check`, as if it were yours; then the solution.

# %%
for gap, versions in slips.items():
    for name, slip in versions.items():
        print(answer := check(gap, slip))
        assert answer == f"{gap}: {name}"
for gap, function in solution.items():
    print(answer := check(gap, function))
    assert answer == f"{gap}: right, equal to gpt.model"
