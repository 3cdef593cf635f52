# %% [markdown]
# # Causal attention and dropout
#
# A GPT learns to predict the next word. If a word could attend to later words, the model would read
# the answer instead of learning it. So attention must hide later words. This lesson hides them in
# three ways, which give the same result; GPTs use the third. Then it shows dropout, which keeps a
# model from learning its text by heart.

# %%
import torch
from torch import nn


def show(name, tensor, numbers=""):
    """Prints a tensor with its name, shape and four digits; asserts that it has these numbers."""
    print(f"{name} {tuple(tensor.shape)}\n{tensor.detach()}")
    if numbers:
        expected = torch.tensor([float(number) for number in numbers.split()])
        torch.testing.assert_close(tensor.flatten(), expected, rtol=0, atol=5.1e-5)


# %% [markdown]
# We use the six words of the lesson `simple`, and the queries and keys of `SelfAttention_v2` from
# the lesson `trainable`. Weights above the diagonal belong to later words. $D = 2$ is the width of
# a key.

# %%
rows = [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64]]  # Your journey starts
rows += [[0.22, 0.58, 0.33], [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]]  # with one step
inputs = torch.tensor(rows)  # (T, d_in) = (6, 3)
torch.manual_seed(789)
W_query = nn.Linear(3, 2, bias=False)
W_key = nn.Linear(3, 2, bias=False)

queries, keys = W_query(inputs), W_key(inputs)  # (T, D) = (6, 2) each
scores = queries @ keys.T  # (T, T)
root = keys.shape[-1] ** 0.5
weights = torch.softmax(scores / root, dim=-1)  # (T, T)
expected_weights = """
0.1921 0.1646 0.1652 0.1550 0.1721 0.1510  0.2041 0.1659 0.1662 0.1496 0.1665 0.1477
0.2036 0.1659 0.1662 0.1498 0.1664 0.1480  0.1869 0.1667 0.1668 0.1571 0.1661 0.1564
0.1830 0.1669 0.1670 0.1588 0.1658 0.1585  0.1935 0.1663 0.1666 0.1542 0.1666 0.1529
"""
show("weights", weights, expected_weights)

# %% [markdown]
# ## First way: set weights to 0, divide again
# `torch.tril` keeps the lower triangle of a matrix. We multiply the weights by this mask: the
# weights of later words become 0. Then a row no longer sums to 1, so we divide it by its new sum.
#
# **Guess 1.** What is the first row, the row of "Your", at the end?
# <details><summary>Answer</summary>
# 1, 0, 0, 0, 0, 0. The first word can only attend to itself. Its context vector is its own value.
# </details>

# %%
mask = torch.tril(torch.ones(6, 6))  # (T, T): 1 where the key is not later than the query
masked = weights * mask  # (T, T)
first = masked / masked.sum(dim=-1, keepdim=True)  # (T, T) / (T, 1)
expected_masked = """
0.1921 0 0 0 0 0                      0.2041 0.1659 0 0 0 0
0.2036 0.1659 0.1662 0 0 0            0.1869 0.1667 0.1668 0.1571 0 0
0.1830 0.1669 0.1670 0.1588 0.1658 0  0.1935 0.1663 0.1666 0.1542 0.1666 0.1529
"""
expected_causal = """
1.0000 0 0 0 0 0                      0.5517 0.4483 0 0 0 0
0.3800 0.3097 0.3103 0 0 0            0.2758 0.2460 0.2462 0.2319 0 0
0.2175 0.1983 0.1984 0.1888 0.1971 0  0.1935 0.1663 0.1666 0.1542 0.1666 0.1529
"""
show("mask", mask, "1 0 0 0 0 0  1 1 0 0 0 0  1 1 1 0 0 0  1 1 1 1 0 0  1 1 1 1 1 0  1 1 1 1 1 1")
show("weights times mask", masked, expected_masked)
show("divided by the sum of each row", first, expected_causal)

# %% [markdown]
# ## Second way: scores times the mask, too
# Now we multiply the scores by the mask, before softmax: the scores of later words become 0.
#
# **Guess 2.** Does this hide later words, without a mask after softmax?
# <details><summary>Answer</summary>
# No. $e^0 = 1$: a score of 0 is a normal score, so the later words still get weight. We must
# multiply by the mask again and divide again. The result is equal to that of the first way, because
# the other weights of a row keep their proportions.
# </details>

# %%
leaking = torch.softmax(scores * mask / root, dim=-1)  # (T, T)
second = leaking * mask / (leaking * mask).sum(dim=-1, keepdim=True)  # (T, T)
show("softmax of scores times mask", leaking)
assert (leaking > 0.1).all()
torch.testing.assert_close(second, first)

# %% [markdown]
# ## Third way: minus infinity before softmax
# $e^{-\infty} = 0$, exactly. One softmax is enough, and each row sums to 1 by itself:
# $w_{ij} = \mathrm{softmax}_j (m_{ij} / \sqrt{D})$, with $m_{ij} = q_i \cdot k_j$ for $j \le i$ and
# $m_{ij} = -\infty$ for $j > i$.

# %%
later = torch.triu(torch.ones(6, 6), diagonal=1).bool()  # (T, T): True where the key is later
hidden = scores.masked_fill(later, -torch.inf)  # (T, T)
third = torch.softmax(hidden / root, dim=-1)  # (T, T)
expected_hidden = """
0.2899 -inf -inf -inf -inf -inf          0.4656 0.1723 -inf -inf -inf -inf
0.4594 0.1703 0.1731 -inf -inf -inf      0.2642 0.1024 0.1036 0.0186 -inf -inf
0.2183 0.0874 0.0882 0.0177 0.0786 -inf  0.3408 0.1270 0.1290 0.0198 0.1290 0.0078
"""
show("scores, later words hidden", hidden, expected_hidden)
assert (third[later] == 0).all()
torch.testing.assert_close(third, first)

# %% [markdown]
# **Guess 3.** Some texts add `torch.triu(torch.ones(6, 6), diagonal=1) * float("-inf")` to the
# scores. What happens?
# <details><summary>Answer</summary>
# $0 \cdot (-\infty)$ is not a number (NaN). The lower triangle becomes NaN, and then every weight.
# `masked_fill` does not multiply, so it has no such problem.
# </details>

# %%
multiplied = torch.triu(torch.ones(6, 6), diagonal=1) * float("-inf")
assert torch.softmax(scores + multiplied, dim=-1).isnan().all()

# %% [markdown]
# ## Dropout
# A model that reads a short text many times learns it by heart. **Dropout** makes that harder. In
# each training step, it sets each number to 0 with probability $p$, and divides the other numbers
# by $1 - p$. With $p = 0.5$, about half of the numbers become 0 and the others are doubled. So the
# mean stays the same. `module.eval()` switches dropout off; usual values of $p$ are 0 to 0.2.
#
# The seed and the processor decide which numbers become 0: on an Intel processor, torch draws them
# with the library MKL, on others with its own generator. The cell shows what an Intel processor
# drops with seed 123, and whether your processor drops the same.

# %%
dropout = nn.Dropout(0.5)
torch.manual_seed(123)
drawn = dropout(torch.ones(6, 6))  # (T, T)
of_intel = "2 2 2 2 2 2  0 2 0 0 0 0  0 0 2 0 2 0  2 2 0 0 0 2  2 0 0 0 0 2  0 2 0 0 0 0"
intel = torch.tensor([float(number) for number in of_intel.split()]).view(6, 6)  # (T, T)
expected_dropped = """
2.0000 0 0 0 0 0       0 0.8966 0 0 0 0  0 0 0.6206 0 0 0
0.5517 0.4921 0 0 0 0  0.4350 0 0 0 0 0  0 0.3327 0 0 0 0
"""
show("dropout of causal weights, Intel", third * intel, expected_dropped)
print("Your processor draws the mask of Intel:", torch.equal(drawn, intel))
assert set(drawn.unique().tolist()) == {0.0, 2.0}
