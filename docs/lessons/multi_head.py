# %% [markdown]
# # Multi-head attention
#
# One head computes one weighted mean of the words. But a word may need several things: the word
# before it, or a name far back. So a layer has several heads, each with its own matrices. You
# compute the heads one after another, then all at once.

# %%
import torch
from torch import nn

from gpt.config import ModelConfig
from gpt.model.attention import ATTENTION


def show(name, tensor, numbers=""):
    """Prints a tensor with its name, shape and four digits; asserts that it has these numbers."""
    print(f"{name} {tuple(tensor.shape)}\n{tensor.detach()}")
    if numbers:
        expected = torch.tensor([float(number) for number in numbers.split()])
        torch.testing.assert_close(tensor.flatten(), expected, rtol=0, atol=5.1e-5)


rows = [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64]]  # Your journey starts
rows += [[0.22, 0.58, 0.33], [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]]  # with one step
batch = torch.tensor([rows, rows])  # (B, T, d_in) = (2, 6, 3): the same text twice

# %% [markdown]
# ## One head, for a batch
# A model computes several texts at once: a **batch**, $(B, T, d_{in})$. `@` and `transpose(-2, -1)`
# work on the last two axes, for each text on its own.


# %%
def attend(q, k, v):
    """(…, T, D) each -> (…, T, D): causal attention over the last two axes."""
    scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5  # (…, T, T)
    later = torch.ones_like(scores, dtype=torch.bool).triu(diagonal=1)
    return torch.softmax(scores.masked_fill(later, -torch.inf), dim=-1) @ v


class CausalAttention(nn.Module):
    """(B, T, d_in) -> (B, T, D)"""

    def __init__(self, d_in, head_size):
        super().__init__()
        self.W_query = nn.Linear(d_in, head_size, bias=False)
        self.W_key = nn.Linear(d_in, head_size, bias=False)
        self.W_value = nn.Linear(d_in, head_size, bias=False)

    def forward(self, x):
        return attend(self.W_query(x), self.W_key(x), self.W_value(x))  # of (B, T, D) each


torch.manual_seed(123)
contexts = CausalAttention(d_in=3, head_size=2)(batch)  # (B, T, D) = (2, 6, 2)
expected = """
-0.4519  0.2216  -0.5874  0.0058  -0.6300 -0.0632
-0.5675 -0.0843  -0.5526 -0.0981  -0.5299 -0.1081
"""
show("contexts of CausalAttention", contexts, 2 * expected)
assert contexts.shape == (2, 6, 2)

# %% [markdown]
# ## Heads side by side
# The wrapper puts the outputs of $H$ heads side by side. Each head has $D$ columns; $D$ is the
# **head size**.


# %%
class MultiHeadAttentionWrapper(nn.Module):
    """(B, T, d_in) -> (B, T, H·D)"""

    def __init__(self, d_in, head_size, n_head):
        super().__init__()
        self.heads = nn.ModuleList(CausalAttention(d_in, head_size) for _ in range(n_head))

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=-1)


torch.manual_seed(123)
wrapper = MultiHeadAttentionWrapper(d_in=3, head_size=2, n_head=2)
side_by_side = wrapper(batch)  # (B, T, H·D) = (2, 6, 4)
expected = """
-0.4519  0.2216 0.4772 0.1063  -0.5874  0.0058 0.5891 0.3257  -0.6300 -0.0632 0.6202 0.3860
-0.5675 -0.0843 0.5478 0.3589  -0.5526 -0.0981 0.5321 0.3428  -0.5299 -0.1081 0.5077 0.3493
"""
show("contexts side by side", side_by_side, 2 * expected)
assert side_by_side.shape == (2, 6, 4)

# %% [markdown]
# **Guess 1.** The first two columns are those of one head alone. Why?
# <details><summary>Answer</summary>
# They are the output of head 0, which draws its matrices first, with the same seed 123. Heads do
# not influence each other, so a computer can compute them at the same time.
# </details>
#
# ## A product of stacks
# To compute all heads at once, we put their queries (or keys, or values) into one tensor of the
# shape $(B, H, T, D)$. `@` then multiplies the matrices of each head.

# %%
head_0 = [[0.2745, 0.6584, 0.2775, 0.8573], [0.8993, 0.0390, 0.9268, 0.7388]]
head_0 += [[0.7179, 0.7058, 0.9156, 0.4340]]
head_1 = [[0.0722, 0.3565, 0.1479, 0.5331], [0.4066, 0.2318, 0.4545, 0.9737]]
head_1 += [[0.4606, 0.5159, 0.4220, 0.5786]]
a = torch.tensor([[head_0, head_1]])  # (B, H, T, D) = (1, 2, 3, 4)
turned = a.transpose(2, 3)  # (B, H, D, T)
expected = """
1.3208 1.1631 1.2879  1.1631 2.2150 1.8424  1.2879 1.8424 2.0402
0.4384 0.6983 0.5880  0.6983 1.3737 1.0620  0.5880 1.0620 0.9912
"""
show("a times a, its last two axes exchanged", a @ turned, expected)  # (B, H, T, T)
assert torch.equal(turned[0, 0], torch.tensor(head_0).T)

# %% [markdown]
# ## All heads at once: weight splits
# One large matrix computes the queries of all heads, a second one the keys, a third one the values.
# Then `split` divides the columns: columns 0 to $D-1$ belong to head 0, the next $D$ to head 1, and
# so on. At the end, `out_proj` mixes the heads.
#
# **Guess 2.** A row of queries has $H \cdot D$ numbers. Why do we write
# `view(B, T, H, D).transpose(1, 2)`, and not `view(B, H, T, D)`?
# <details><summary>Answer</summary>
# `view` keeps the numbers in their order in memory. With `view(B, H, T, D)`, head 0 would get all
# columns of the first words, and head 1 all columns of the last words. torch raises no error, but
# the heads are wrong.
# </details>


# %%
class MultiHeadAttention(nn.Module):
    """(B, T, d_in) -> (B, T, d_out); each of the H heads has D = d_out / H columns."""

    def __init__(self, d_in, d_out, n_head, qkv_bias=False):
        super().__init__()
        assert d_out % n_head == 0, "d_out must be divisible by n_head"
        self.n_head = n_head
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)

    def split(self, x):
        B, T, d_out = x.shape
        return x.view(B, T, self.n_head, d_out // self.n_head).transpose(1, 2)  # (B, H, T, D)

    def concat(self, x):
        """The contexts of all heads, side by side: (B, T, d_in) -> (B, T, d_out)."""
        q, k, v = (self.split(W(x)) for W in (self.W_query, self.W_key, self.W_value))
        return attend(q, k, v).transpose(1, 2).flatten(2)  # (B, H, T, D) -> (B, T, H·D)

    def forward(self, x):
        return self.out_proj(self.concat(x))


torch.manual_seed(123)
attention = MultiHeadAttention(d_in=3, d_out=2, n_head=2)  # D = 1
output = attention(batch)  # (B, T, d_out)
expected = """
0.3190 0.4858  0.2943 0.3897  0.2856 0.3593  0.2693 0.3873  0.2639 0.3928  0.2575 0.4028
"""
show("output of MultiHeadAttention", output, 2 * expected)
assert output.shape == (2, 6, 2)

# %% [markdown]
# Both forms are the same attention. We stack the wrapper's matrices one below the other and copy
# them into the new module. The numbers before `out_proj` are then equal to the wrapper's.

# %%
same = MultiHeadAttention(d_in=3, d_out=4, n_head=2)  # D = 2
with torch.no_grad():
    for name in ("W_query", "W_key", "W_value"):
        stacked = torch.cat([getattr(head, name).weight for head in wrapper.heads])  # (H·D, d_in)
        getattr(same, name).weight.copy_(stacked)
torch.testing.assert_close(same.concat(batch), side_by_side)

# %% [markdown]
# ## The attention of gptx
# gptx has attention in two forms: `heads` has a readable module for each head, `fused` one fast
# kernel for all heads. In a GPT, input and output have the same width $C$ (`n_embd`); the head size
# is $C / H$. A checkpoint has one matrix `qkv`: first the rows for queries, then keys, then values.
# With the same weights, both forms and the module above give the same outputs and gradients.

# %%
ours = MultiHeadAttention(d_in=4, d_out=4, n_head=2)
x = side_by_side.detach().requires_grad_()  # (B, T, C) = (2, 6, 4)
state = {"qkv.weight": torch.cat([ours.W_query.weight, ours.W_key.weight, ours.W_value.weight])}
state |= {"proj.weight": ours.out_proj.weight, "proj.bias": ours.out_proj.bias}
config = ModelConfig(vocab_size=1, block_size=6, n_head=2, n_embd=4, bias=True, position="learned")
(gradient,) = torch.autograd.grad(ours(x).square().sum(), x)
for form in ("heads", "fused"):
    theirs = ATTENTION[form](config)
    theirs.load_state_dict(state)
    y = theirs(x, rotate=lambda q, k: (q, k))  # the learned positions are already in x
    torch.testing.assert_close(y, ours(x))
    torch.testing.assert_close(torch.autograd.grad(y.square().sum(), x)[0], gradient)

# %% [markdown]
# **Guess 3.** The smallest GPT-2 has $C = 768$ and 12 heads. How many numbers does training change
# in the attention of one layer, without biases for queries, keys and values?
# <details><summary>Answer</summary>
# $4 \cdot 768^2 + 768 = 2360064$: four square matrices, and the bias of `out_proj`. The number of
# heads does not matter: if there are more heads, each head is narrower.
# </details>
