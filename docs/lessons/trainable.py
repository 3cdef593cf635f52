# %% [markdown]
# # Attention with trainable weights
#
# In the lesson `simple`, a word always attends to similar words. A model must be able to learn
# other relations: a verb may look for its subject, a closing bracket for the opening bracket. So
# three trained matrices give each word three new rows: what it looks for, what it offers, and what
# it contributes.

# %%
import torch
from torch import nn


def show(name, tensor, numbers=""):
    """Prints a tensor with its name, shape and four digits; asserts that it has these numbers."""
    print(f"{name} {tuple(tensor.shape)}\n{tensor.detach()}")
    if numbers:
        expected = torch.tensor([float(number) for number in numbers.split()])
        torch.testing.assert_close(tensor.flatten(), expected, rtol=0, atol=5.1e-5)


# %%
rows = [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64]]  # Your journey starts
rows += [[0.22, 0.58, 0.33], [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]]  # with one step
inputs = torch.tensor(rows)  # (T, d_in) = (6, 3)
d_in, d_out = inputs.shape[1], 2

torch.manual_seed(123)  # everybody draws the same random numbers
W_query = torch.rand(d_in, d_out)  # between 0 and 1; training would change them
W_key = torch.rand(d_in, d_out)
W_value = torch.rand(d_in, d_out)
show("W_key", W_key, "0.1366 0.1025  0.1841 0.7264  0.3153 0.6871")

# %% [markdown]
# ## Query, key and value
# The **query** says what a word looks for. The **key** says what a word offers: other words compare
# their queries with it. The **value** is what a word contributes to the mean.
#
# $$q = x \, W_{query} \qquad k = x \, W_{key} \qquad v = x \, W_{value}$$

# %%
x_2 = inputs[1]  # (d_in,), "journey"
query_2 = x_2 @ W_query  # (d_in,) @ (d_in, d_out) -> (d_out,)
key_2 = x_2 @ W_key  # (d_out,)
value_2 = x_2 @ W_value  # (d_out,)
show("query of journey", query_2, "0.4306 1.4551")
show("key of journey", key_2, "0.4433 1.1419")
show("value of journey", value_2, "0.3951 1.0037")

keys = inputs @ W_key  # (T, d_in) @ (d_in, d_out) -> (T, d_out)
values = inputs @ W_value  # (T, d_out)
assert keys.shape == values.shape == (6, 2)

# %% [markdown]
# **Guess 1.** In `simple`, the score of "journey" with "one" equals the score of "one" with
# "journey". Are the two scores still equal?
# <details><summary>Answer</summary>
# No. The first score is the query of "journey" times the key of "one". The second score is the
# query of "one" times the key of "journey".
# </details>
#
# ## Scores, weights, context
# A score is a query times a key. Before softmax, we divide the scores by $\sqrt{d_k}$, where $d_k =
# 2$ is the width of a key. This is **scaled dot-product attention** (Vaswani et al. 2017).
#
# $$w = \mathrm{softmax}\left(\frac{q K^\top}{\sqrt{d_k}}\right) \qquad z = w V$$

# %%
scores_2 = query_2 @ keys.T  # (d_out,) @ (d_out, T) -> (T,)
d_k = keys.shape[-1]
weights_2 = torch.softmax(scores_2 / d_k**0.5, dim=-1)  # (T,)
context_2 = weights_2 @ values  # (T,) @ (T, d_out) -> (d_out,)
show("scores of journey", scores_2, "1.2705 1.8524 1.8111 1.0795 0.5577 1.5440")
show("weights of journey", weights_2, "0.1500 0.2264 0.2199 0.1311 0.0906 0.1820")
show("context of journey", context_2, "0.3061 0.8210")
assert abs(scores_2[4] - (inputs[4] @ W_query) @ key_2) > 0.01  # guess 1

# %% [markdown]
# **Guess 2.** Queries and keys have 64 columns of random numbers with mean 0 and standard deviation
# 1. What is the standard deviation of their scores? And why does it matter?
# <details><summary>Answer</summary>
# $\sqrt{64} = 8$: a score is a sum of 64 products, and variances add up. With scores so far apart,
# softmax gives nearly all weight to one word. Then the gradient of softmax is nearly 0, and the
# matrices hardly learn. After the division by $\sqrt{d_k}$, scores have the standard deviation 1
# for every $d_k$.
# </details>

# %%
random_scores = (torch.randn(20_000, 64) * torch.randn(20_000, 64)).sum(dim=1)  # (20000,)
assert 7.8 < random_scores.std() < 8.2

# %% [markdown]
# ## As a module
# `nn.Parameter` tells torch that training may change a matrix. The module computes all words at
# once.


# %%
class SelfAttention_v1(nn.Module):
    """(T, d_in) -> (T, d_out), with three matrices as parameters."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query = nn.Parameter(torch.rand(d_in, d_out))
        self.W_key = nn.Parameter(torch.rand(d_in, d_out))
        self.W_value = nn.Parameter(torch.rand(d_in, d_out))

    def forward(self, x):
        q, k, v = x @ self.W_query, x @ self.W_key, x @ self.W_value  # (T, d_out) each
        weights = torch.softmax(q @ k.T / k.shape[-1] ** 0.5, dim=-1)  # (T, T)
        return weights @ v  # (T, d_out)


torch.manual_seed(123)
v1 = SelfAttention_v1(d_in, d_out)
expected = """
0.2996 0.8053  0.3061 0.8210  0.3058 0.8203  0.2948 0.7939  0.2927 0.7891  0.2990 0.8040
"""
show("contexts of SelfAttention_v1", v1(inputs), expected)
torch.testing.assert_close(v1(inputs)[1], context_2)

# %% [markdown]
# ## With nn.Linear
# Models use `nn.Linear`. It draws the numbers of its matrix between $-1/\sqrt{d_{in}}$ and
# $1/\sqrt{d_{in}}$; training starts better from such numbers.


# %%
class SelfAttention_v2(nn.Module):
    """(T, d_in) -> (T, d_out), with three Linear layers."""

    def __init__(self, d_in, d_out, qkv_bias=False):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)

    def forward(self, x):
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)  # (T, d_out) each
        weights = torch.softmax(q @ k.T / k.shape[-1] ** 0.5, dim=-1)  # (T, T)
        return weights @ v  # (T, d_out)


torch.manual_seed(789)
v2 = SelfAttention_v2(d_in, d_out)
expected = """
-0.0739 0.0713  -0.0748 0.0703  -0.0749 0.0702  -0.0760 0.0685  -0.0763 0.0679  -0.0754 0.0693
"""
show("contexts of SelfAttention_v2", v2(inputs), expected)

# %% [markdown]
# **Guess 3.** We copy the matrices of `v2` into `v1`, so that both give the same contexts. What is
# the shape of `v2.W_key.weight`?
# <details><summary>Answer</summary>
# (2, 3), not (3, 2): a Linear has a row for each output and computes $x W^\top$. So each matrix
# must be transposed.
# </details>

# %%
for name in ("W_query", "W_key", "W_value"):
    matrix = getattr(v2, name).weight.detach()  # (d_out, d_in)
    setattr(v1, name, nn.Parameter(matrix.T.clone()))  # (d_in, d_out)
show("W_key of v1, copied", v1.W_key, "0.4058 0.2134  -0.4704 -0.2601  0.2368 -0.5105")
show("contexts of v1, copied", v1(inputs), expected)
assert v2.W_key.weight.shape == (2, 3)
