# %% [markdown]
# # The Transformer: an encoder and a decoder
#
# The model of "Attention Is All You Need" (Vaswani et al. 2017) has two stacks of blocks. The
# **encoder** reads a source text. The **decoder** writes a target text, one character after
# another, and looks at the source by **cross-attention**. You build both and train them for half a
# minute: they learn to write `2026-12-24` for `24 Dec 2026`.
#
# Names: `B` texts, `S` characters of the source, `T` characters of the target, `C` = d_model
# columns, `H` heads, `D = C // H`, `V` characters in the vocabulary.

# %%
import math
import os
import random
from datetime import date

import torch
from torch import nn

# %% [markdown]
# ## Positions and LayerNorm
# Attention does not know the order of its inputs. So we add a fixed row of waves for each position
# $t$: $P_{t, 2i} = \sin(t / 10000^{2i/C})$ and $P_{t, 2i+1} = \cos(t / 10000^{2i/C})$.
#
# LayerNorm gives all rows the same size: gain · (x − mean) / (std + ε) + shift.


# %%
def sinusoidal(length, d_model):
    speeds = 10_000 ** (-torch.arange(0, d_model, 2) / d_model)  # (C / 2,)
    angles = torch.arange(length)[:, None] * speeds  # (length, C / 2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # (length, C)


class LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)  # (B, T, 1)
        return self.gain * (x - mean) / (std + self.eps) + self.shift


# %% [markdown]
# ## Attention between two texts
# Queries come from `x`, keys and values from `memory`. In self-attention, `x` and `memory` are the
# same text. In cross-attention, `memory` is the encoder's output. `allowed` is True where a query
# may attend to a key.
#
# **Guess 1.** The source has 16 characters, and the decoder has read 3 characters of the target.
# What shape do the weights of one head of cross-attention have?
# <details><summary>Answer</summary>
# (3, 16): a row for each query (from the target), a column for each key (from the source).
# </details>


# %%
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_head):
        super().__init__()
        self.n_head = n_head
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.value = nn.Linear(d_model, d_model, bias=False)
        self.proj = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.unflatten(-1, (self.n_head, -1)).transpose(1, 2)  # (B, T, C) -> (B, H, T, D)

    def forward(self, x, memory, allowed):
        """x: (B, T, C), memory: (B, S, C), allowed: (B, T or 1, S) -> (B, T, C)"""
        q = self.split(self.query(x))  # (B, H, T, D)
        k, v = self.split(self.key(memory)), self.split(self.value(memory))  # (B, H, S, D)
        scores = q @ k.mT / q.shape[-1] ** 0.5  # (B, H, T, S)
        self.weights = scores.masked_fill(~allowed[:, None], -math.inf).softmax(dim=-1)
        return self.proj((self.weights @ v).transpose(1, 2).flatten(2))  # (B, T, C)


# %% [markdown]
# ## Blocks
# Each block adds the output of a sublayer to its input and normalises the sum (**post-norm**):
# $x \leftarrow \text{norm}(x + \text{dropout}(\text{sublayer}(x)))$.


# %%
class EncoderBlock(nn.Module):
    def __init__(self, d_model, n_head, d_ff, dropout=0.1):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_head)
        up, down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.feed_forward = nn.Sequential(up, nn.ReLU(), down)
        self.norm1, self.norm2 = LayerNorm(d_model), LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, seen):
        x = self.norm1(x + self.dropout(self.attention(x, x, seen)))  # (B, S, C)
        return self.norm2(x + self.dropout(self.feed_forward(x)))


class DecoderBlock(EncoderBlock):
    def __init__(self, d_model, n_head, d_ff, dropout=0.1):
        super().__init__(d_model, n_head, d_ff, dropout)
        self.cross = MultiHeadAttention(d_model, n_head)
        self.norm3 = LayerNorm(d_model)

    def forward(self, x, memory, allowed, seen):
        x = self.norm1(x + self.dropout(self.attention(x, x, allowed)))  # (B, T, C)
        x = self.norm3(x + self.dropout(self.cross(x, memory, seen)))
        return self.norm2(x + self.dropout(self.feed_forward(x)))


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


sizes = count(EncoderBlock(512, 8, 2048)), count(DecoderBlock(512, 8, 2048))
print("parameters of the paper's blocks, encoder and decoder:", sizes)
assert sizes == (3_150_848, 4_200_960)

# %% [markdown]
# ## The whole model
# The **padding mask** hides the padding, which fills up shorter texts. The **causal mask** hides
# later characters from the decoder. The model multiplies embeddings by $\sqrt{C}$. It uses one
# matrix for the embeddings of source and target, and for the output weights (**tying**).

# %%
PAD, START = 0, 1  # ids


class Transformer(nn.Module):
    def __init__(self, vocab_size, *, d_model, n_head, d_ff, n_layer, dropout=0.1, length=64):
        super().__init__()
        sizes = d_model, n_head, d_ff, dropout
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.register_buffer("position", sinusoidal(length, d_model))  # (length, C)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(EncoderBlock(*sizes) for _ in range(n_layer))
        self.decoder = nn.ModuleList(DecoderBlock(*sizes) for _ in range(n_layer))
        self.output = nn.Linear(d_model, vocab_size, bias=False)
        self.output.weight = self.embedding.weight  # tied
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def embed(self, ids):
        x = self.embedding(ids) * self.position.shape[1] ** 0.5  # (B, T, C)
        return self.dropout(x + self.position[: ids.shape[1]])

    def encode(self, source):
        seen, x = (source != PAD)[:, None], self.embed(source)  # (B, 1, S), (B, S, C)
        for block in self.encoder:
            x = block(x, seen)
        return x

    def decode(self, target, memory, source):
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()  # (T, T)
        allowed = causal & (target != PAD)[:, None]  # (B, T, T)
        seen, x = (source != PAD)[:, None], self.embed(target)  # (B, 1, S), (B, T, C)
        for block in self.decoder:
            x = block(x, memory, allowed, seen)
        return self.output(x)  # (B, T, V)

    def forward(self, source, target):
        return self.decode(target, self.encode(source), source)


# %% [markdown]
# ## The dates
# We draw 20,500 days between 1900 and 2099 and write each in one of seven forms. The first 500 days
# are for the test: the model does not see them in training.

# %%
FORMS = ["%d %B %Y", "%B %d, %Y", "%d %b %Y", "%b %d, %Y", "%d/%m/%Y", "%d.%m.%Y", "%Y%m%d"]
draw = random.Random(0)
every = range(date(1900, 1, 1).toordinal(), date(2100, 1, 1).toordinal())
days = [date.fromordinal(number) for number in draw.sample(every, 20_500)]
texts = [day.strftime(draw.choice(FORMS)) for day in days]
answers = [">" + day.isoformat() for day in days]  # ">" is the start
characters = ["·", ">", *sorted(set("".join(texts + answers)) - {">"})]  # "·" is padding
numbers = {character: number for number, character in enumerate(characters)}
V = len(characters)


def encode(texts):
    """The ids of texts, filled up with PAD to the longest one: (B, S)"""
    rows = [torch.tensor([numbers[character] for character in text]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


sources, targets = encode(texts), encode(answers)
print("source", texts[0], sources[0])
print("target", answers[0], targets[0])

# %% [markdown]
# ## Training
# The decoder reads `>2026-12-2` and learns to predict `2026-12-24`: the next character at each
# position. All positions train at once, because the causal mask hides the answers (**teacher
# forcing**). Post-norm needs a learning rate that starts small (**warm-up**).
#
# **Guess 2.** How large is the loss before the first step, with $V$ characters?
# <details><summary>Answer</summary>
# About $\ln V$, the loss of a uniform guess, or a little more.
# </details>


# %%
def loss_of(model, rows):
    logits = model(sources[rows], targets[rows, :-1])  # (B, T, V)
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets[rows, 1:].flatten())


STEPS, WARM_UP, RATE = int(os.environ.get("LESSON_STEPS", 600)), 100, 3e-3
torch.manual_seed(0)
model = Transformer(V, d_model=64, n_head=4, d_ff=256, n_layer=1, dropout=0.0)
optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
print(f"{count(model):,} parameters, ln V = {math.log(V):.4f}")
for step in range(STEPS):
    optimizer.param_groups[0]["lr"] = RATE * min((step + 1) / WARM_UP, 1 - step / STEPS)
    loss = loss_of(model, torch.randint(500, len(days), (128,)))  # B = 128
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0 or step == STEPS - 1:
        print(f"step {step:4}  loss {loss.item():.4f}")

# %% [markdown]
# ## Writing
# The encoder runs once. The decoder runs ten times: each time, it reads what it has written so far,
# and we append the likeliest next character.


# %%
@torch.no_grad()
def translate(source):
    memory, target = model.encode(source), torch.full((len(source), 1), START)
    for _ in range(10):
        best = model.decode(target, memory, source)[:, -1].argmax(dim=-1)  # (B,)
        target = torch.cat((target, best[:, None]), dim=1)
    return target  # (B, 11)


written = translate(sources[:500])
for text, ids in zip(texts[:8], written.tolist(), strict=False):
    print(f"{text:26} {''.join(characters[number] for number in ids[1:])}")
exact = (written == targets[:500]).all(dim=1).double().mean().item()
print(f"exact: {exact:.1%} of 500 dates that the model has not seen")
if STEPS >= 600:
    assert exact >= 0.95

# %% [markdown]
# ## What cross-attention looks at
# The table has a row for each character that the decoder writes, and a column for each character of
# the source. A number is the mean weight of the four heads.
#
# **Guess 3.** Two rows write the month. To which characters of the source do they attend most?
# <details><summary>Answer</summary>
# To the letters of the month: the model has learned that Dec means 12.
# </details>

# %%
source = "24 Dec 2026"
target = translate(encode([source]))  # (1, 11)
weights = model.decoder[0].cross.weights[0].mean(dim=0)  # (T, S) = (10, 11), of the last call
print("cross-attention (10, 11)\n ", *(f"{character:>4}" for character in source))
for number, row in zip(target[0, 1:], weights.tolist(), strict=True):
    print(characters[number], *(f"{weight:.2f}" for weight in row))
if STEPS >= 600:
    assert weights[5:7, 3:6].sum(dim=1).min() > 0.5  # "12" looks at "Dec"

# %% [markdown]
# ## Five mistakes
# A published notebook contains all five mistakes. None of them shows there, because its two texts
# have ten words each and no padding.
#
# **1. Cross-attention gets the target's padding mask.** If source and target differ in length,
# torch raises an error. If they have the same length, queries attend to the padding of the source,
# and nobody notices this mistake.

# %%
cross, memory = model.decoder[0].cross, model.encode(sources[:1])  # (1, S, C)
try:
    cross(memory[:, :3], memory, torch.ones(1, 1, 3, dtype=torch.bool))
    raise AssertionError("must not work")
except RuntimeError as error:
    print(error)

# %% [markdown]
# **2. The embedding has no row for padding.** 1024 words have the ids 0 … 1023, but padding has the
# id 1024.

# %%
try:
    nn.Embedding(1024, 8)(torch.tensor([1024]))
    raise AssertionError("must not work")
except IndexError as error:
    print(error)

# %% [markdown]
# **3. The notebook never sets the initial weights:** it does not call its `_reset_parameters`. An
# embedding then has torch's standard deviation, 1, and the loss starts far above $\ln V$.

# %%
new = Transformer(V, d_model=64, n_head=4, d_ff=256, n_layer=1)
xavier = loss_of(new, range(64)).item()
nn.init.normal_(new.embedding.weight)
never = loss_of(new, range(64)).item()
print(f"loss at the start: {xavier:.4f} after Xavier's, {never:.4f} after torch's initialisation")
assert xavier < 6 < 20 < never

# %% [markdown]
# **4. The notebook describes tying, but does not do it.** Its model has three matrices of
# 1024 × 512 in place of one: 1,048,576 parameters more. In this lesson, the three are one object:

# %%
assert model.output.weight is model.embedding.weight

# %% [markdown]
# **5. The decoder block has a dropout module, but never applies it.** So two calls in training give
# the same numbers.

# %%
block, seen = DecoderBlock(64, 4, 256), torch.ones(1, 1, 1, dtype=torch.bool)
assert not torch.equal(*(block(memory, memory, seen, seen) for _ in range(2)))
block.dropout = nn.Identity()  # as if it were never called
assert torch.equal(*(block(memory, memory, seen, seen) for _ in range(2)))
