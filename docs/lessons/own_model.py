# %% [markdown]
# # A head of your own model
#
# You train a small GPT and take one head apart: its scores by hand, its weights, its output. Then
# you switch it off, and give it the output of another text.
#
# The text `repeats` has lines such as `qwertyqwerty`: a word of random letters comes again and
# again. Two heads start on the previous characters, and the blocks have attention only, so that 220
# steps suffice: a few seconds. For a model of your own, write `run = gpt.load("checkpoints/mine")`.
#
# Names: `T` characters, `C` = n_embd columns, `H` heads, `D = C // H`, `V` characters in all.

# %%
import tempfile

import numpy as np

import gpt


def show(name, table):
    """Prints a table with its name and shape, four digits."""
    print(name, np.shape(table))
    print(np.array2string(np.array(table), 100, precision=4, suppress_small=True))


def softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


small = {"steps": 220, "previous_heads": 2, "feed_forward": False, "evaluations": 1}
with tempfile.TemporaryDirectory() as folder:
    run = gpt.train("repeats", data=folder, checkpoints=folder, progress=False, **small)
L, H, D = run.config.n_layer, run.config.n_head, run.config.head_size
print(f"{L} layers, {H} heads, C = {run.config.n_embd}, D = {D}")

# %% [markdown]
# ## Every activation
# `run.activations(text)` returns what the model computes, by name. A key selects: `["q", 1, 0]` is
# layer 1, head 0. The first axis is the text: `[0]` takes the only one.
#
# We look for a head that copies. The text is a word twice. At the second `w`, an **induction head**
# attends to the `e` after the first `w`: `period − 1` places back.
#
# **Guess 1.** Which layer has this head, and why not layer 0?
# <details><summary>Answer</summary>
# Layer 1. The head must know which character stands before each key. A head of layer 0 writes this
# into the stream, and only later layers can read it.
# </details>

# %%
word = "qwerty"
text = word + word[:-1]  # the model must predict the last letter
T, period, right = len(text), len(word), run.vocabulary.characters.index(word[-1])
acts = run.activations(text)
copied = acts["weights"][0].diagonal(1 - period, axis1=2, axis2=3)[..., 1:].mean(axis=-1)
show("mean weight on the letter after the same letter, by layer and head", copied)  # (L, H)
layer, head = divmod(int(copied.argmax()), H)
print(f"the best head: layer {layer}, head {head}")
assert layer == 1

# %% [markdown]
# ## q · k by hand
# One score is a sum of $D$ products: $\sum_d q_d k_d / \sqrt{D}$. All scores are one product of
# matrices. Then the mask, then softmax: these must be the weights that the model used.

# %%
q, k, v = (acts[name, layer, head][0].astype(np.float64) for name in "qkv")  # (T, D) each
query, key = T - 1, T - period  # the last character, and the one after its first occurrence
score = sum(q[query, d] * k[key, d] for d in range(D))
scores = q @ k.T / D**0.5  # (T, T)
print(f"q of {text[query]!r} · k of {text[key]!r} = {score:.4f}; / √D = {scores[query, key]:.4f}")
assert abs(score / D**0.5 - scores[query, key]) < 1e-9

weights = softmax(np.where(np.tri(T, dtype=bool), scores, -np.inf))  # (T, T)
show(f"weights by hand, rows and columns: {text}", weights)
assert np.allclose(weights, acts["weights", layer, head][0], atol=1e-4)
assert np.allclose(weights @ v, acts["context", layer, head][0], atol=1e-3)  # (T, D)

# %% [markdown]
# ## The prediction, with and without the head
# The logits of the last character give a probability for each next one: $p = \text{softmax}$. A
# `patch` replaces a stage; all that follows is computed from the new values. `context` is the
# output of a head. If it is 0, the head is switched off.
#
# **Guess 2.** The best head is switched off. Will the model still predict the right letter?
# <details><summary>Answer</summary>
# Yes: the other heads of the layer do the same job. Only without all of them does p fall to that of
# a guess.
# </details>


# %%
def predict(patch=None, text=text):
    """(V,) probabilities of the next character, with some stages replaced."""
    return softmax(run.logits(text, patch=patch)[0, -1].astype(np.float64))


p = predict()
heads = [("context", layer, number) for number in range(H)]
alone = [predict({name: 0})[right] for name in heads]
none = predict(dict.fromkeys(heads, 0))[right]
print(f"after {text!r} comes {run.vocabulary.characters[p.argmax()]!r}")
show(f"p of {word[-1]!r}: as it is, without head 0, 1, …, without all", [p[right], *alone, none])
assert p.argmax() == predict({heads[head]: 0}).argmax() == right
assert none < 0.5 * p[right]

# %% [markdown]
# ## Patch the heads
# The same heads get the output that they have in another text, whose answer is another letter. All
# else stays as it is. If these heads carry the answer, the prediction moves to the other letter.
#
# **Guess 3.** After the patch, is p of the first text's letter 0?
# <details><summary>Answer</summary>
# Not exactly: softmax gives no character exactly 0.
# </details>

# %%
other = "qwertpqwert"  # its answer is p
wrong, last = run.vocabulary.characters.index("p"), T - 1
context = run.activations(other, "context")
patch = {(*name, last): context[(*name, last)][0] for name in heads}  # the last position only
results = np.stack([p, predict(patch), predict(text=other)])[:, [right, wrong]]  # (3, 2)
show("p of y and p: in the text, patched, in the other text", results)
assert results[1, 1] > 0.5 * results[2, 1] > results[0, 1]
