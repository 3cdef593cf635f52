"""The lesson "learning": one word's loss, its gradient by hand, and one step of learning.

The first functions do its computations: forward and backward pass of a small GPT with one head, the
slopes of a function, and a step of AdamW.
Tensor names: T words that are read, V words of the vocabulary, C width, D head size; the weights
are (V, C), three of (D, C), (V, D).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.adamw import adamw

from gpt.checks import Check
from gpt.config import TrainConfig
from gpt.lessons.ladder import CausalAttention
from gpt.lessons.lesson import Material, Step
from gpt.lessons.tables import check_equal, input_tensor, table, torch_seed

Named = dict[str, Tensor]
Moved = tuple[Tensor, Tensor, Tensor]
Function = Callable[[Tensor], Tensor]
WEIGHTS = ("embedding", "W_query", "W_key", "W_value", "W_output")
EPS = 1e-8  # AdamW's epsilon, in torch and in gptx
HEAD_SIZE, SEED = 2, 123
H, HS = 1e-5, (1e-1, 1e-3, 1e-5, 1e-7, 1e-9)  # distances of finite differences
SHARES = (0.01, 2.0)  # shares of the loss that two steps of SGD are to remove
NEAR, EPSILON = 1e-6, 2.0**-52  # gradients and errors below it are nearly 0; float64's epsilon


def run_forward(weights: Named, ids: Tensor, target: int) -> Named:
    """The loss (nats) of the word `target` after (T,) ids, and all numbers before it in order."""
    x = weights["embedding"][ids]  # (T, C)
    query = weights["W_query"] @ x[-1]  # (D,)
    keys, values = x @ weights["W_key"].T, x @ weights["W_value"].T  # (T, D)
    scores = keys @ query / len(query) ** 0.5  # (T,)
    a = F.softmax(scores, dim=0)
    context = a @ values  # (D,)
    logits = weights["W_output"] @ context  # (V,)
    loss = logits.logsumexp(dim=0) - logits[target]
    before = {"x": x, "query": query, "keys": keys, "values": values, "scores": scores, "a": a}
    return before | {"context": context, "logits": logits, "loss": loss}


@torch.no_grad()
def run_backward(weights: Named, ids: Tensor, target: int, seen: Named) -> Named:
    """The gradient of the loss by each weight and each number in `seen`, from `run_forward`.

    The chain rule by hand, without autograd. J is the (T, T) Jacobian of the softmax of the scores.
    """
    a, query, root = seen["a"], seen["query"], len(seen["query"]) ** 0.5
    d_logits = F.softmax(seen["logits"], dim=0)
    d_logits[target] -= 1
    d_context = weights["W_output"].T @ d_logits
    d_values, d_a = a.outer(d_context), seen["values"] @ d_context
    jacobian = a.diag() - a.outer(a)
    d_scores = jacobian @ d_a
    d_query, d_keys = seen["keys"].T @ d_scores / root, d_scores.outer(query) / root
    d_x = d_keys @ weights["W_key"] + d_values @ weights["W_value"]
    d_x[-1] += d_query @ weights["W_query"]
    seen_by = {"x": d_x, "query": d_query, "keys": d_keys, "values": d_values, "scores": d_scores}
    seen_by |= {"J": jacobian, "a": d_a, "context": d_context, "logits": d_logits}
    return seen_by | {
        "embedding": torch.zeros_like(weights["embedding"]).index_add(0, ids, d_x),
        "W_query": d_query.outer(seen["x"][-1]),
        "W_key": d_keys.T @ seen["x"],
        "W_value": d_values.T @ seen["x"],
        "W_output": d_logits.outer(seen["context"]),
    }


def join(named: Named) -> Tensor:
    """The weights, or their gradients, as one row of N numbers, in the order of WEIGHTS."""
    return torch.cat([named[name].detach().flatten() for name in WEIGHTS])


def split(row: Tensor, shapes: Named) -> Named:
    """The inverse of `join`: matrices of the same shapes as those given."""
    parts = torch.split(row, [shapes[name].numel() for name in WEIGHTS])
    return {n: part.view_as(shapes[n]) for n, part in zip(WEIGHTS, parts, strict=True)}


def find_largest(gradient: Named) -> list[int]:
    """For each matrix, the place in the joined row of the number with the largest gradient."""
    matrices = [gradient[name] for name in WEIGHTS]
    starts = accumulate((each.numel() for each in matrices[:-1]), initial=0)
    return [n + int(each.abs().argmax()) for n, each in zip(starts, matrices, strict=True)]


def measure_slopes(function: Function, at: Tensor, places: list[int], h: float) -> Tensor:
    """(K,) central differences: the slopes of a function of (N,) numbers at K places.

    Each number is changed by ±h. Rounding changes h itself a little, so the quotient divides by the
    actual difference.
    """
    steps = h * torch.eye(len(at), dtype=at.dtype)[places]
    pairs = [(at + step, at - step) for step in steps]
    return torch.stack([(function(up) - function(down)) / (up - down).sum() for up, down in pairs])


def step_adamw(w: Tensor, m: Tensor, v: Tensor, g: Tensor, step: int, config: TrainConfig) -> Moved:
    """Weights w, moments m and v after step 1, 2 … of AdamW, from those before and gradients g.

    Kingma & Ba 2015; for the decay of the weights, Loshchilov & Hutter 2019.
    """
    m = config.beta1 * m + (1 - config.beta1) * g
    v = config.beta2 * v + (1 - config.beta2) * g**2
    mean, square = m / (1 - config.beta1**step), v / (1 - config.beta2**step)
    move = mean / (square.sqrt() + EPS) + config.weight_decay * w
    return w - config.learning_rate * move, m, v


def step_torch(w: Tensor, m: Tensor, v: Tensor, g: Tensor, step: int, config: TrainConfig) -> Moved:
    """The same, computed by the function that torch.optim.AdamW calls.

    The class itself imports torch's compiler, which takes two seconds.
    """
    w, m, v, count = w.clone(), m.clone(), v.clone(), torch.tensor(step - 1.0)
    adamw(
        *([w], [g], [m], [v], [], [count]),
        amsgrad=False,
        maximize=False,
        beta1=config.beta1,
        beta2=config.beta2,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        eps=EPS,
    )
    return w, m, v


def steps(material: Material) -> Iterator[Step]:
    """A forward pass, the gradient by a backward pass, a test of it, and steps along it."""
    words, seed = material.words, material.seed_or(SEED)
    reads, vocabulary = words[:-1] or words, tuple(dict.fromkeys(words))
    answer, size = f"“{words[-1]}”", len(vocabulary)
    all_ids = torch.tensor([vocabulary.index(word) for word in words])
    ids, target = all_ids[: len(reads)], int(all_ids[-1])
    rows = input_tensor(material)[[words.index(word) for word in vocabulary]]
    embedding = nn.Embedding.from_pretrained(rows, freeze=False)  # type: ignore[no-untyped-call]
    with torch_seed(seed):
        head = CausalAttention(rows.shape[1], HEAD_SIZE, len(reads)).double()
        output = nn.Linear(HEAD_SIZE, size, bias=False).double()
        for matrix in (*head.parameters(), output.weight):
            nn.init.normal_(matrix)
    matrices = (embedding.weight, *head.parameters(), output.weight)
    weights: Named = dict(zip(WEIGHTS, matrices, strict=True))
    logits = output(head(embedding(ids)[None])[0, -1])
    loss, p = F.cross_entropy(logits, torch.tensor(target)), F.softmax(logits, dim=0)
    seen = run_forward(weights, ids, target)
    predictions = {"logit": logits, "p": p, "−ln p": -F.log_softmax(logits, dim=0)}
    yield Step(
        "From words to a loss",
        f"A GPT learns to predict the next word. Here a very small one reads “{' '.join(reads)}” "
        f"and must predict {answer}. It has an embedding, in which equal words share a row, a head "
        "(`CausalAttention`, lesson “causal”) and an output matrix, which gives each distinct word "
        f"a logit. Both have random matrices, seed {seed}. Softmax turns logits into probabilities "
        "p. The loss is −ln p of the right word, in nats (Shannon 1948).",
        "scores = keys · query / √D    a = softmax(scores)    context = a · values    "
        "logits = W_output · context    loss = −ln softmax(logits)[target]",
        (
            table("inputs", embedding(all_ids), rows=words),
            table("predictions", predictions, rows=vocabulary),
        ),
        f"The loss is {loss.item():.4f}. If all p were equal: ln {size} = {math.log(size):.4f}.",
        (
            check_equal("logits = CausalAttention, then nn.Linear", seen["logits"], logits),
            check_equal("loss = F.cross_entropy", seen["loss"], loss),
        ),
    )
    d = run_backward(weights, ids, target, seen)
    by_torch = dict(zip(seen, torch.autograd.grad(seen["loss"], [*seen.values()]), strict=True))
    by_torch |= dict(zip(WEIGHTS, torch.autograd.grad(loss, matrices), strict=True))

    def agree(*names: str) -> Check:
        one, other = (torch.cat([g[n].flatten() for n in names]) for g in (d, by_torch))
        return check_equal(f"{', '.join(f'∂{name}' for name in names)} = autograd", one, other)

    right = torch.eye(size, dtype=p.dtype)[target]
    yield Step(
        "The gradient of the logits",
        "The gradient says for each number how fast the loss rises if this number rises: a slope. "
        "For −ln p of a softmax, the gradient of a logit is its p, minus 1 at the right word "
        "(Bridle 1990). From here on, ∂y is short for ∂loss / ∂y.",
        "∂logits = p − 1[target]",
        (table("∂logits", {"p": p, "1[target]": right, "∂logits": d["logits"]}, rows=vocabulary),),
        f"Only {answer} can have a gradient below 0: if its logit rises, the loss falls.",
        (agree("logits"), check_equal("sum = 0", d["logits"].sum(), 0)),
    )
    shown = torch.stack((seen["context"], d["context"]))
    yield Step(
        "Through the output matrix",
        "Backpropagation (Rumelhart, Hinton & Williams 1986) goes from the loss back to the words "
        "and applies the chain rule to each operation. Logit i is row i of W_output times the "
        "context, so ∂W_output[i, j] is ∂logits[i] × context[j]: an outer product. Each logit "
        "contains the context, so ∂context is a sum over the logits.",
        "∂W_output = ∂logits ⊗ context    ∂context = W_outputᵀ · ∂logits",
        (
            table("context and its gradient", shown, rows=("context", "∂context")),
            table("∂W_output", d["W_output"], rows=vocabulary),
        ),
        "Each row of ∂W_output is the context times one number.",
        (agree("W_output"), agree("context")),
    )
    yield Step(
        "Through the attention weights",
        "The context is the sum of attention weight a[j] × values[j]. So ∂values[j] is a[j] × "
        "∂context, and ∂a[j] is a dot product. Softmax computes a from the scores. Its Jacobian J "
        "has the derivative of each weight by each score (Bridle 1990): if a score rises, its own "
        "weight rises and the others fall.",
        "∂values = a ⊗ ∂context    ∂a = values · ∂context    J = diag(a) − aaᵀ    ∂scores = J · ∂a",
        (
            table("∂values", d["values"], rows=reads),
            table("J", d["J"], rows=reads, columns=reads),
            table("∂scores", {"a": seen["a"], "∂a": d["a"], "∂scores": d["scores"]}, rows=reads),
        ),
        "∂scores sum to 0: if all scores rise by the same number, no weight changes.",
        (agree("values"), agree("a", "scores")),
    )
    yield Step(
        "To the three matrices",
        f"A score is key · query / √D with D = {HEAD_SIZE}, so the query and each key get a "
        "gradient. Query, keys and values are a matrix times a word’s row x. So the gradient of "
        "each matrix is an outer product again, summed over the words.",
        "∂query = keysᵀ · ∂scores / √D    ∂keys = ∂scores ⊗ query / √D    "
        "∂W_query = ∂query ⊗ x[last]    ∂W_key = ∂keysᵀ · x    ∂W_value = ∂valuesᵀ · x",
        tuple(table(f"∂{name}", d[name]) for name in WEIGHTS[1:4]),
        "" if len(reads) > 1 else "A single word has weight 1 with any score, so ∂scores are 0.",
        (agree("query", "keys"), agree(*WEIGHTS[1:4])),
    )
    learns = bool(join(d).abs().max() > NEAR)
    unread = "" if target in ids else f"{answer} is predicted, but not read: its row is 0."
    yield Step(
        "To the embedding",
        "Each row of x gets a gradient from its key and its value, the last one also from the "
        "query. These rows are copies of rows of the embedding: if a word is read twice, its row "
        "of ∂embedding is the sum of two rows of ∂x. With tied weights (--tied; Press & Wolf "
        "2017), W_output is the embedding itself, and every row gets a gradient from its logit.",
        "∂x = ∂keys · W_key + ∂values · W_value    ∂x[last] += ∂query · W_query",
        (table("∂embedding", d["embedding"], rows=vocabulary),),
        unread if learns else "All gradients are nearly 0 here, so the lesson ends.",
        (agree("embedding"),),
    )

    def loss_at(row: Tensor) -> Tensor:
        return run_forward(split(row, weights), ids, target)["loss"]

    if learns:
        large = [max(1.0, float(seen[n].detach().abs().max())) for n in ("scores", "logits")]
        yield _differences(loss_at, weights, d, noise=16 * EPSILON / H * math.prod(large))
        yield step_sgd(loss_at, join(weights), join(d))
        yield _adamw(weights, d, vocabulary)


def _differences(loss_at: Function, weights: Named, by_hand: Named, noise: float) -> Step:
    """Slopes of the loss and its gradient. noise: how much rounding may change a slope."""
    w, g, at = join(weights), join(by_hand), find_largest(by_hand)
    slopes, wider, *other = (measure_slopes(loss_at, w, at, h) for h in (H, 2 * H, *HS))
    largest, error = max(1.0, float(g[at].abs().max())), float((slopes - g[at]).abs().max())
    errors = (torch.stack(other) - g[at]).square().mean(dim=1).sqrt() / largest
    digits = -errors.clamp(EPSILON, 1).log10()
    bound = float((wider - slopes).abs().max()) / 2 + noise  # the error is a third of it
    clear = bound < NEAR * largest
    return Step(
        "A test with finite differences",
        "A gradient can be tested without calculus: compute the loss with one number larger by h, "
        "then smaller by h, and divide the difference by 2h. The first table has the number of "
        "each matrix with the largest gradient; the second, for several h, how many digits of "
        "these slopes are right on average. With a large h, the loss is too curved in between. "
        "With a small h, only the last digits of the two losses differ (Press et al. 2007).",
        "slope = (loss(w + h) − loss(w − h)) / 2h",
        (
            table(f"slopes, h = {H:g}", {"∂w": g[at], "slope": slopes}, rows=WEIGHTS, digits=7),
            table("right digits", digits, columns=tuple(f"{h:g}" for h in HS), digits=0),
        ),
        "" if clear else "Here the loss is too steep or too curved for such a test.",
        (Check("slopes = gradients", error, bound),) if clear else (),
    )


def step_sgd(loss_at: Function, w: Tensor, g: Tensor) -> Step:
    """How much the loss falls in two steps of SGD, predicted and real."""
    loss, square = loss_at(w), g.square().sum()
    along = torch.autograd.functional.jvp(loss_at, w, g)[1]  # type: ignore[no-untyped-call]
    rates = torch.tensor(SHARES, dtype=w.dtype) * loss / square
    predicted, real = rates * square, torch.stack([loss - loss_at(w - r * g) for r in rates])
    ratio = real / predicted.clamp(EPSILON)
    falls = {"rate": rates, "predicted": predicted, "real": real, "real/pred.": ratio}
    return Step(
        "One step of SGD",
        "Gradient descent subtracts the gradient times a learning rate from all weights at once. "
        "It is called stochastic (SGD) if the gradient comes from a part of the text (Robbins & "
        "Monro 1951). If the loss were a straight line, it would fall by rate × |g|². Here |g|², "
        f"the sum of all squared gradients, is {float(square):.4f}. Then the small rate removes "
        f"{SHARES[0]:.0%} of the loss, and the large one {SHARES[1]:.0%}, which is impossible.",
        "w ← w − rate × ∂w    predicted fall = rate × |g|²",
        (table("falls", falls, rows=("small", "large")),),
        "The gradient is the slope at one point: it predicts the fall of small steps only."
        if abs(ratio[0] - 1) < 0.05
        else "Here even the small step is too large for this prediction.",
        (check_equal("|g|² = autograd’s slope along g", along, square),),
    )


def _adamw(weights: Named, by_hand: Named, vocabulary: tuple[str, ...]) -> Step:
    """The first step of AdamW; then three steps compared with torch's."""
    w, g, config = join(weights), join(by_hand), TrainConfig()
    rate, decay = config.learning_rate, config.weight_decay
    ours, theirs = [(w, 0 * g, 0 * g)], [(w, 0 * g, 0 * g)]
    for step in (1, 2, 3):
        ours.append(step_adamw(*ours[-1], g, step, config))
        theirs.append(step_torch(*theirs[-1], g, step, config))
    moves, expected = ([(s[0] - w) / rate for s in each[1:]] for each in (ours, theirs))
    m, v, at = *ours[1][1:], find_largest(by_hand)
    shown = {"∂w": g[at], "m": m[at], "v": v[at], "move/rate": moves[0][at]}
    first = -g / (g.abs() + EPS) - decay * w
    return Step(
        "One step of AdamW",
        "Adam (Kingma & Ba 2015) keeps two moments of each gradient: m, a moving mean, and v, a "
        "moving mean of its square. Both start at 0 and are too small at first, so step t divides "
        "them by 1 − βᵗ. AdamW (Loshchilov & Hutter 2019) also makes each weight a little smaller: "
        f"the decay. gptx’s defaults are rate {rate:g}, decay {decay:g}, β₁ {config.beta1:g} and "
        f"β₂ {config.beta2:g}; ε is {EPS:g}. Again with the five numbers of the test:",
        "m ← β₁ m + (1 − β₁) ∂w    v ← β₂ v + (1 − β₂) ∂w²    "
        "w ← w − rate × (m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + ε) + decay × w)",
        (
            table("first step", shown, rows=WEIGHTS),
            table("W_output’s move/rate", split(moves[0], weights)["W_output"], rows=vocabulary),
        ),
        "Divided by 1 − β, the first m and v are ∂w and ∂w². So their quotient m / √v is 1 or −1: "
        "each number with a gradient moves by about the rate, whatever the gradient’s size.",
        (
            check_equal(
                "three steps = torch.optim’s adamw", torch.stack(moves), torch.stack(expected)
            ),
            check_equal("first move = −∂w / (|∂w| + ε) − decay × w", moves[0], first),
        ),
    )
