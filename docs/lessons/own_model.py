# %% [markdown]
# # A head of your own model
#
# You train a small GPT and compute one of its heads by hand: scores, weights and output. Then you
# switch this head off. At the end, you replace the output of heads by their output in another text.
#
# The text `repeats` has lines such as `qwertyqwerty`: a word of random letters comes again and
# again. 220 steps are enough, a few seconds: two heads start on the previous characters, and the
# blocks have no feed-forward layer. For a model of your own, write
# `run = gpt.load("checkpoints/mine")`.
#
# Names: the text has `T` characters, the vocabulary `V`. The model has `C` = n_embd columns and `H`
# heads of the size `D = C // H`.

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
# `run.activations(text)` returns what the model computes, by name: `acts["q", 1, 0]` are the
# queries of layer 1, head 0. The first axis is the text; `[0]` takes the only text.
#
# We look for a head that copies. The text is a word that comes twice. At the second `w`, an
# **induction head** attends to the `e` after the first `w`: `period − 1` characters back.
#
# **Guess 1.** Which layer has this head, and why not layer 0?
# <details><summary>Answer</summary>
# Layer 1. The head must know which character stands before each key. A head of layer 0 writes this
# into the residual stream, and only later layers can read it.
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
# One score is a sum of $D$ products: $\sum_d q_d k_d / \sqrt{D}$. One product of two matrices
# computes all scores. We apply the mask and softmax; the result must be the weights that the model
# used.

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
# The softmax of the last character's logits gives each next character its probability $p$. A
# `patch` replaces a stage, and gptx computes everything after it from the new values. `context` is
# the output of a head. If we replace it by 0, the head is switched off.
#
# **Guess 2.** We switch the best head off. Does the model still predict the right letter?
# <details><summary>Answer</summary>
# Yes: the other heads of the layer do the same job. If all heads of the layer are off, $p$ is as
# low as the probability of a guess.
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
# Now we replace the output of all heads of this layer by their output in another text, in which
# another letter comes next. Nothing else changes. If these heads carry the answer, the prediction
# moves to the other letter.
#
# **Guess 3.** After the patch, is $p$ of the first text's letter 0?
# <details><summary>Answer</summary>
# No, but it is small: softmax gives no character exactly 0.
# </details>

# %%
other = "qwertpqwert"  # its answer is p
wrong, last = run.vocabulary.characters.index("p"), T - 1
context = run.activations(other, "context")
patch = {(*name, last): context[(*name, last)][0] for name in heads}  # the last position only
results = np.stack([p, predict(patch), predict(text=other)])[:, [right, wrong]]  # (3, 2)
show("p of y and p: in the text, patched, in the other text", results)
assert results[1, 1] > 0.5 * results[2, 1] > results[0, 1]
