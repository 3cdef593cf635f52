# %% [markdown]
# # Simple attention
#
# Attention gives each word of a sentence a new row of numbers, which also depends on the other
# words. This lesson computes attention with dot products, softmax and a weighted mean; nothing is
# trained yet.

# %%
import torch


def show(name, tensor, numbers=""):
    """Prints a tensor with its name, shape and four digits; asserts that it has these numbers."""
    print(f"{name} {tuple(tensor.shape)}\n{tensor.detach()}")
    if numbers:
        expected = torch.tensor([float(number) for number in numbers.split()])
        torch.testing.assert_close(tensor.flatten(), expected, rtol=0, atol=5.1e-5)


# %% [markdown]
# ## Words as rows of numbers
# A model computes with numbers. So each word gets a row of numbers, its **embedding**: here, $T =
# 6$ words have rows of width $C = 3$. In a real model, training finds the numbers, and a row has
# hundreds of them.

# %%
words = ["Your", "journey", "starts", "with", "one", "step"]
rows = [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64]]
rows += [[0.22, 0.58, 0.33], [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]]
inputs = torch.tensor(rows)  # (T, C) = (6, 3)

# %% [markdown]
# ## Scores: which words are similar?
# We follow one word, "journey". The word that looks at the others is called the **query**. Its
# **score** with word $j$ is the dot product of their rows: multiply number by number, then add. Two
# rows that point in the same direction have a high score.
#
# $$s_j = x_{query} \cdot x_j = \sum_{c=1}^{C} x_{query,c} \, x_{j,c}$$

# %%
query = inputs[1]  # (C,), "journey"
scores_2 = torch.empty(len(words))  # (T,)
for j, x_j in enumerate(inputs):
    scores_2[j] = torch.dot(query, x_j)
show("scores of journey", scores_2, "0.9544 1.4950 1.4754 0.8434 0.7070 1.0865")

# %% [markdown]
# **Guess 1.** "journey" has its highest score with itself: 1.4950. Does every word have its highest
# score with itself?
# <details><summary>Answer</summary>
# No. A dot product also grows with the length of a row. The row of "with" is short: its score with
# itself is 0.4937, its score with "journey" 0.8434. Both are in the table of all scores below.
# </details>
#
# ## Weights: softmax
# We want to mix the words: much of a word with a high score, little of a word with a low score.
# This is a weighted mean, and its weights must sum to 1. The simplest way is to divide each score
# by the sum of all scores.

# %%
shares_2 = scores_2 / scores_2.sum()  # (T,)
show("scores / their sum", shares_2, "0.1455 0.2278 0.2249 0.1285 0.1077 0.1656")
show("sum", shares_2.sum(), "1.0000")

# %% [markdown]
# This works only if all scores are positive: of the scores 1, −1 and 2, the second gets the share
# −0.5. So **softmax** first takes the exponential of each score, which is always positive.
#
# $$w_j = \frac{e^{s_j}}{\sum_k e^{s_k}}$$


# %%
def softmax_by_hand(scores):
    return torch.exp(scores) / torch.exp(scores).sum()  # (T,)


naive_2 = softmax_by_hand(scores_2)  # (T,)
weights_2 = torch.softmax(scores_2, dim=0)  # (T,)
show("softmax by hand", naive_2, "0.1385 0.2379 0.2333 0.1240 0.1082 0.1581")
show("sum", weights_2.sum(), "1.0000")
torch.testing.assert_close(weights_2, naive_2)

# %% [markdown]
# **Guess 2.** We add 10 to every score. How do the weights change?
# <details><summary>Answer</summary>
# They do not change. Each exponential is multiplied by $e^{10}$, above and below the fraction line,
# so this factor cancels. torch uses this fact: it first subtracts the largest score, because
# $e^{1000}$ is too large for a floating-point number.
# </details>

# %%
torch.testing.assert_close(torch.softmax(scores_2 + 10, dim=0), weights_2)
assert softmax_by_hand(torch.tensor([1000.0, 999.0])).isnan().all()

# %% [markdown]
# ## The context vector
# The **context vector** of "journey" is the weighted mean of all rows, $z = \sum_j w_j x_j$. It is
# the new row of "journey".

# %%
context_2 = torch.zeros_like(query)  # (C,)
for w_j, x_j in zip(weights_2, inputs, strict=True):
    context_2 += w_j * x_j
show("context of journey", context_2, "0.4419 0.6515 0.5683")

# %% [markdown]
# ## All words at once
# Now each word is the query once. Row $i$ of the table has the scores of word $i$ with all words.
# Two loops compute the table; one matrix product gives the same table much faster: $S = X X^\top$.

# %%
looped = torch.empty(len(words), len(words))  # (T, T)
for i, x_i in enumerate(inputs):
    for j, x_j in enumerate(inputs):
        looped[i, j] = torch.dot(x_i, x_j)
scores = inputs @ inputs.T  # (T, C) @ (C, T) -> (T, T)
expected_scores = """
0.9995 0.9544 0.9422 0.4753 0.4576 0.6310  0.9544 1.4950 1.4754 0.8434 0.7070 1.0865
0.9422 1.4754 1.4570 0.8296 0.7154 1.0605  0.4753 0.8434 0.8296 0.4937 0.3474 0.6565
0.4576 0.7070 0.7154 0.3474 0.6654 0.2935  0.6310 1.0865 1.0605 0.6565 0.2935 0.9450
"""
show("scores", scores, expected_scores)
torch.testing.assert_close(looped, scores)

# %% [markdown]
# **Guess 3.** The table of scores is symmetric: the score of "one" with "step" and the score of
# "step" with "one" are both 0.2935. Softmax then works on each row (`dim=-1`, the last axis). Is
# the table of weights symmetric, too?
# <details><summary>Answer</summary>
# No. Each row is divided by its own sum. "one" gives "step" the weight 0.1295, "step" gives "one"
# the weight 0.0988.
# </details>

# %%
weights = torch.softmax(scores, dim=-1)  # (T, T)
expected_weights = """
0.2098 0.2006 0.1981 0.1242 0.1220 0.1452  0.1385 0.2379 0.2333 0.1240 0.1082 0.1581
0.1390 0.2369 0.2326 0.1242 0.1108 0.1565  0.1435 0.2074 0.2046 0.1462 0.1263 0.1720
0.1526 0.1958 0.1975 0.1367 0.1879 0.1295  0.1385 0.2184 0.2128 0.1420 0.0988 0.1896
"""
show("weights", weights, expected_weights)
show("sum of each row", weights.sum(dim=-1), "1.0000 1.0000 1.0000 1.0000 1.0000 1.0000")

# %% [markdown]
# A second product gives all context vectors: $Z = \mathrm{softmax}(X X^\top) \, X$.

# %%
contexts = weights @ inputs  # (T, T) @ (T, C) -> (T, C)
expected_contexts = """
0.4421 0.5931 0.5790  0.4419 0.6515 0.5683  0.4431 0.6496 0.5671
0.4304 0.6298 0.5510  0.4671 0.5910 0.5266  0.4177 0.6503 0.5645
"""
show("contexts", contexts, expected_contexts)
torch.testing.assert_close(contexts[1], context_2)

# %% [markdown]
# ## Hello shiny sun! By hand, and a rounding error
# Three words are few enough for paper. Compute the context vector of "shiny", then run the cell.
# A published calculation by hand gives 0.3992, 0.3858, 0.8610. Its method is right, but it rounds
# the numbers in each step (`rounded_parts`). Keep all digits, and round only the result.

# %%
three = torch.tensor([[0.34, 0.22, 0.54], [0.53, 0.34, 0.98], [0.29, 0.54, 0.93]])  # (3, C)
shiny_scores = three @ three[1]  # (3, C) @ (C,) -> (3,)
shiny_weights = torch.softmax(shiny_scores, dim=0)  # (3,)
parts = shiny_weights[:, None] * three  # (3, C): weight times row, for each word
show("scores of shiny", shiny_scores)
show("weights of shiny", shiny_weights)
show("weight times row", parts)
show("context of shiny", parts.sum(dim=0), "0.3990 0.3854 0.8610")

rows = [[0.0779, 0.0504, 0.1237], [0.2156, 0.1382, 0.3983], [0.1057, 0.1972, 0.3390]]
rounded_parts = torch.tensor(rows)  # (3, C)
show("context of shiny, rounded on the way", rounded_parts.sum(dim=0), "0.3992 0.3858 0.8610")
