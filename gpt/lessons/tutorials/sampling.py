"""The lesson "sampling": logits, temperature, four filters, their order, and draws.

The first functions do for a single distribution what gpt/reading/sampler.py does, which a tutorial
must not import; tests compare the two. Tensor names: V characters, N random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf, log
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gpt.checks import Check
from gpt.config import SampleConfig
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.lessons.lesson import Material, Step, Table
from gpt.lessons.tables import EQUAL, check_equal, input_tensor, table

LARGEST = 5.0  # the largest logit
SHARP, FLAT = 0.5, 2.0  # temperatures
DEFAULT = SampleConfig()  # defaults of `gptx sample`: a temperature, but no filter
K, P, SHARE, NEAR = 3, 0.9, 0.1, 0.5  # top-k, top-p, min-p, typical-p
FILTERED = SampleConfig(top_k=K, top_p=P, min_p=SHARE, typical_p=NEAR)
DRAWS, SHOWN = 1_000, 5
LOGIT_OF, P_OF = "likeliest_first[:, 0]", "likeliest_first[:, 1]"  # names in rules
FAR = 6  # standard errors; a share that differs by more is a fault


def temperature_softmax(logits: Tensor, temperature: float) -> Tensor:
    """(V,) logits -> probabilities; temperature 0 gives all to the first largest logit."""
    if temperature == 0:
        return F.one_hot(logits.argmax(), len(logits)).to(logits)
    return F.softmax((logits - logits.max()) / temperature, dim=0)


def rank(scores: Tensor) -> Tensor:
    """(V,) ids, the largest score first; among equal scores, the lowest id first."""
    return scores.argsort(descending=True, stable=True)


def rank_typical(p: Tensor) -> Tensor:
    """(V,) ids, the surprisal nearest to the entropy first, then the likeliest first."""
    likeliest = rank(p)
    return likeliest[rank(-distances(p)[likeliest])]


def distances(p: Tensor) -> Tensor:
    """(V,) distances of the surprisals −ln p from the entropy, in steps of 1e-9 nats."""
    entropy: Tensor = torch.special.entr(p).sum()
    return (-p.log() - entropy).abs().round(decimals=9)


def keep_fewest(amounts: Tensor, order: Tensor, least: float) -> Tensor:
    """(V,) True for the fewest ids, taken in this order, whose amounts add up to `least`."""
    kept = torch.empty_like(amounts, dtype=torch.bool)
    kept[order] = amounts[order].cumsum(dim=0) - amounts[order] < least
    return kept


#: Name of the option -> function of (V,) probabilities and the option's value -> (V,) True for the
#: ids to keep.
FILTERS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "top_k": lambda p, k: keep_fewest(torch.ones_like(p), rank(p), k),
    "top_p": lambda p, mass: keep_fewest(p, rank(p), mass),
    "min_p": lambda p, share: p >= share * p.max(),
    "typical_p": lambda p, mass: keep_fewest(p, rank_typical(p), mass),
}


def shape(
    logits: Tensor, config: SampleConfig, order: Sequence[str] = DISTRIBUTION_OPTIONS
) -> list[Tensor]:
    """(V,) logits -> the (V,) probabilities after each option that is set, in this order.

    Removed characters get 0; the other probabilities are divided by their sum.
    """
    p, after = temperature_softmax(logits, 1), []
    for name in order:
        value = getattr(config, name)
        if value is None:
            continue
        if name == "temperature":
            p = temperature_softmax(p.log(), value)
        else:
            p = p * FILTERS[name](p, value)
            p = p / p.sum()
        after.append(p)
    return after


def uniforms(seed: int, count: int) -> Tensor:
    """The first random numbers of the first text of `gptx sample --seed`: (N,) in [0, 1).

    Philox is counter-based (Salmon et al. 2011); 53 of its bits make a float.
    """
    raw = np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)).random_raw(count)
    return torch.from_numpy((raw >> np.uint64(11)) * 2.0**-53)


def draw(p: Tensor, u: Tensor) -> Tensor:
    """(V,) probabilities, (N,) random numbers -> (N,) ids, by inversion."""
    ends = p.cumsum(dim=0)
    return (ends <= u[:, None] * ends[-1]).sum(dim=1).clamp(max=len(p) - 1)


def steps(material: Material) -> Iterator[Step]:
    """From the logits of the words to one drawn word, and to the shares over many draws."""
    x, last = input_tensor(material), material.words[-1]
    first = [material.words.index(word) for word in dict.fromkeys(material.words)]
    products, order = (x[first] @ x[-1]).sort(descending=True, stable=True)
    words = tuple(material.words[first[n]] for n in order.tolist())
    logits = LARGEST * products / (products.abs().max() or 1)
    p = temperature_softmax(logits, 1)
    entropy = torch.special.entr(p).sum() / log(2)
    by_logits = logits.logsumexp(dim=0) - p @ logits
    scaled = f"{LARGEST:g} * products[:, 0] / max(abs(products[:, 0]))"
    rule = f"columns({scaled}, softmax({scaled}), -log2(softmax({scaled})))" * bool(products.any())
    yield Step(
        "Logits become probabilities",
        "A GPT multiplies the row of the last position by a row for each character that it knows "
        "(lm_head in gpt/model/gpt.py). The products are the logits. Here the "
        f"{len(words)} different words take the place of the characters, and the row of “{last}”, "
        "the last word, is the row of the last position. The lesson scales the products so that "
        f"the largest, without its sign, is {LARGEST:g}. Softmax turns logits into probabilities p "
        "(Bridle 1990). The entropy is the mean of the surprisals −log₂ p (Shannon 1948).",
        "p = exp(logit) / Σ exp(logits)    entropy = −Σ p × log₂ p",
        (
            table("inputs", x, rows=material.words),
            _columns("products", words, product=products),
            _columns("likeliest first", words, rule, logit=logits, p=p, bits=-p.log2()),
        ),
        f"The entropy is {entropy:.4f} bits: the next word is as uncertain as a choice among "
        f"2^{entropy:.4f} = {2**entropy:.2f} equally likely words.",
        (
            check_equal("by hand = softmax", logits.exp() / logits.exp().sum(), p),
            check_equal("entropy = (ln Σ exp − Σ p × logit) / ln 2", by_logits / log(2), entropy),
        ),
    )
    yield from steps_of(logits, words, material.seed)


def steps_of(logits: Tensor, words: Sequence[str], seed: int | None) -> Iterator[Step]:
    """From (V,) logits, the largest first, to the shares over many draws."""
    yield _temperature(logits, words)
    yield from _filters(logits, words)
    yield _together(logits, words)
    yield from _draws(logits, words, DEFAULT.seed if seed is None else seed)


def _columns(name: str, words: Sequence[str], rule: str = "", /, **columns: Tensor) -> Table:
    """A table with a row for each word."""
    return table(name, columns, rule, rows=tuple(words))


def _temperature(logits: Tensor, words: Sequence[str]) -> Step:
    """The same logits at four temperatures."""
    softened = {f"T = {T:g}": temperature_softmax(logits, T) for T in (0, SHARP, 1, FLAT)}
    greedy, sharp, p, flat = softened.values()
    bits = torch.special.entr(torch.stack([*softened.values()])).sum(dim=1) / log(2)
    summands = "where(temperatures.T == 0, 0, -temperatures.T * log2(temperatures.T))"
    rules = [f"where(before({P_OF}, {P_OF}) == 0, 1, 0)"]
    rules += [f"softmax({LOGIT_OF} / {T:g})" for T in (SHARP, 1, FLAT)]
    gap = float(logits[0] - logits[1]) if len(words) > 1 else 0.0
    return Step(
        "Temperature",
        "A temperature T divides the logits before softmax (Ackley et al. 1985). Below 1 it makes "
        "likely words likelier; above 1 it makes the probabilities more equal. T = 0 gives all to "
        f"the largest logit, the first of equal ones. gptx’s default is {DEFAULT.temperature:g}.",
        "p = softmax(logits / T)    p[i] / p[j] = (p[i] / p[j] at T = 1) ^ (1 / T)",
        (
            _columns("temperatures", words, f"columns({', '.join(rules)})", **softened),
            table("entropy in bits", bits, f"sum({summands})", columns=tuple(softened)),
        ),
        f"The first word is {float(p[0] / p[-1]):,.2f} times as likely as the last one at T = 1, "
        f"{float(sharp[0] / sharp[-1]):,.2f} times at T = {SHARP:g}, and "
        f"{float(flat[0] / flat[-1]):,.2f} times at T = {FLAT:g}.",
        (
            check_equal(f"ratios at T = {SHARP:g}", sharp / sharp[0], (p / p[0]) ** (1 / SHARP)),
            check_equal(f"ratios at T = {FLAT:g}", flat / flat[0], (p / p[0]) ** (1 / FLAT)),
            *[check_equal("a T near 0 = T at 0", temperature_softmax(logits, gap / 40), greedy)]
            * bool(gap),
        ),
    )


def _filters(logits: Tensor, words: Sequence[str]) -> Iterator[Step]:
    """Each filter by itself, at temperature 1."""
    config = replace(FILTERED, temperature=1)
    alone = (shape(logits, config, ("temperature", name))[-1] for name in FILTERS)
    top_k, top_p, min_p, typical = alone
    p = temperature_softmax(logits, 1)
    nearest = rank_typical(p)

    def step(
        title: str, text: str, after: Tensor, keeps: str, *checks: Check, **more: Tensor
    ) -> Step:
        order = nearest if after is typical else torch.arange(len(p))
        columns = {"p": p[order], **more, "sum": p[order].cumsum(dim=0), "after": after[order]}
        after_p = f"where({keeps}, {P_OF}, 0)"
        rule = f"columns({P_OF}, {f'{P_OF} / max({P_OF}), ' * bool(more)}cumsum({P_OF}), "
        rule = f"{rule}{after_p} / sum({after_p}))" if keeps else ""
        shown = _columns(title.split(":")[0], [words[n] for n in order], rule, **columns)
        kept = after > 0
        removed = F.softmax(logits.masked_fill(~kept, -inf), dim=0)
        notice = f"“after” is above 0 for {int(kept.sum())} of {len(p)} words. Their p sum to "
        notice += f"{float(p[kept].sum()):.4f}." + " The likeliest is removed." * (not kept[0])
        checks = (check_equal("softmax with −∞ for the removed", removed, after), *checks)
        return Step(title, text, "after = p / sum of the kept p", (shown,), notice, checks)

    yield step(
        f"Top-k: the {K} likeliest",
        f"Top-k keeps the k likeliest words (Fan et al. 2018), here k = {K}. The others get "
        "probability 0. Each kept probability is divided by the sum of the kept ones. The column "
        "“sum” adds p from the first row on.",
        top_k,
        f"before({P_OF}, 0 * {P_OF} + 1) < {K}",
        check_equal("kept = torch.topk", p[top_k > 0].sum(), p.topk(min(K, len(p))).values.sum()),
    )
    fewer, enough = (float(p.topk(int((top_p > 0).sum()) - n).values.sum()) for n in (1, 0))
    yield step(
        "Top-p: the nucleus",
        "A fixed k keeps unlikely words where the model is sure, and removes likely ones where it "
        "is not. Top-p keeps the nucleus: the fewest words whose sum reaches a number, here "
        f"{P:g} (Holtzman et al. 2020).",
        top_p,
        f"before({P_OF}, {P_OF}) < {P:g}",
        Check("one word fewer is too few", max(0.0, fewer - P, P - enough), EQUAL),
    )
    above = (logits - logits[0] - log(SHARE)) * torch.where(min_p > 0, 1, -1)
    yield step(
        "Min-p: a share of the largest",
        f"Min-p keeps words with at least {SHARE:g} times the largest probability (Nguyen et al. "
        "2024). Where the model is sure, few words reach that; where it is not, many do.",
        min_p,
        f"{P_OF} >= {SHARE:g} * max({P_OF})",
        Check("logit ≥ largest + ln min_p", max(0.0, -float(above.min())), EQUAL),
        ratio=p / p[0],
    )
    distance, away = distances(p), (logits - p @ logits).abs()
    nearer = away[typical > 0].max() - torch.where(typical > 0, inf, away).min()
    yield step(
        "Typical-p: near the entropy",
        "In human text, the surprisal of most words is near the entropy (Meister et al. 2023). "
        "Typical-p sorts the words by the distance of their surprisal −ln p from the entropy, in "
        f"nats, and keeps the fewest whose sum reaches {NEAR:g}, the nearest first. So it may "
        "remove the likeliest word.",
        typical,
        "",
        check_equal("distance = |logit − Σ p × logit|", distance, away),
        Check("no removed word is nearer", max(0.0, float(nearer)), EQUAL),
        distance=distance[nearest],
    )


def _together(logits: Tensor, words: Sequence[str]) -> Step:
    """All options in the order of gptx, and in the reverse order."""
    after, reverse = (
        shape(logits, FILTERED),
        shape(logits, FILTERED, DISTRIBUTION_OPTIONS[::-1])[-1],
    )
    T, last = FILTERED.temperature, after[-1]
    names = (f"T = {T:g}", *(name.replace("_", "-") for name in DISTRIBUTION_OPTIONS[1:]))
    masked = F.softmax((logits / T).masked_fill(last == 0, -inf), dim=0)
    equal = bool(((last > 0) == (reverse > 0)).all())
    return Step(
        "All of them, in order",
        f"gptx applies its options in this order: {', '.join(names)}. Here they have the values of "
        "the steps above. A test compares the results with gpt/reading/sampler.py, which "
        "`gptx sample` uses. The order matters, as a sum or an entropy depends on the words that "
        f"are left. “reversed” begins with {names[-1]} and ends with {names[0]}. Other programs "
        "have other orders: llama.cpp applies the temperature last by default.",
        "",
        (
            _columns("after each", words, **dict(zip(names, after, strict=True))),
            _columns("two orders", words, gptx=last, reversed=reverse),
        ),
        f"The two orders keep {'the same' if equal else 'different'} words here.",
        (check_equal("one softmax with −∞ for the removed", masked, last),),
    )


def _draws(logits: Tensor, words: Sequence[str], seed: int) -> Iterator[Step]:
    """One draw with the defaults of `gptx sample`, then many."""
    p, u = shape(logits, DEFAULT)[-1], uniforms(seed, DRAWS)
    ends, drawn = p.cumsum(dim=0), draw(p, u)
    starts = F.pad(ends, (1, 0))[:-1]
    outside = torch.maximum(starts[drawn] - u, u - ends[drawn]).clamp(min=0)
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)))
    q = f"softmax({LOGIT_OF} / {DEFAULT.temperature:g})"
    rule = f"columns({q}, cumsum({q}) - {q}, cumsum({q}))"
    n, shown = int(drawn[0]), tuple(words[n] for n in drawn[:SHOWN])
    yield Step(
        "One draw",
        "On a line from 0 to 1, each word gets an interval as long as its p. In gptx, the "
        "intervals are in the order of the vocabulary; here the likeliest word is the first. A "
        "random number u from 0 to 1 falls into one interval and draws its word (inversion, "
        f"Devroye 1986). `gptx sample --seed {seed}` takes the numbers below for its first text, "
        "one for each character. They come from Philox (Salmon et al. 2011), whose key is the seed "
        "and the number of the text. Here p has the defaults of `gptx sample`: T = "
        f"{DEFAULT.temperature:g} and no filter.",
        "start ≤ u < end",
        (
            _columns("intervals", words, rule, p=p, start=starts, end=ends),
            table("first u and their words", u[:SHOWN, None], rows=shown, columns=("u",)),
        ),
        f"The first u, {float(u[0]):.4f}, is in the interval from {float(starts[n]):.4f} to "
        f"{float(ends[n]):.4f}: the first word is “{words[n]}”.",
        (
            check_equal(
                "u = numpy’s Generator.random", torch.from_numpy(generator.random(DRAWS)), u, 0
            ),
            Check("each u is in the interval of its word", float(outside.max()), EQUAL),
        ),
    )
    shares, even = (
        draw(p, each).bincount(minlength=len(words)).double() / DRAWS
        for each in (u, (torch.arange(DRAWS).double() + 0.5) / DRAWS)
    )
    error = (p * (1 - p) / DRAWS).sqrt()
    difference = (shares - p).abs()
    far = float((difference - FAR * error).clamp(min=0).max())
    yield Step(
        f"{DRAWS:,} draws",
        f"The first {DRAWS:,} numbers of this seed draw {DRAWS:,} words with the same p. A share "
        "differs from p by chance, and the standard error (de Moivre 1733) is the usual size of "
        "that difference. With four times as many draws, it is half as large. The first check "
        f"allows {FAR} standard errors and {FAR} draws.",
        "error = √(p × (1 − p) / n)",
        (_columns(f"{DRAWS:,} draws", words, p=p, share=shares, error=error),),
        f"{int((difference <= error).sum())} of {len(words)} shares are within one error of p.",
        (
            Check("shares differ only by chance", far, FAR / DRAWS),
            check_equal("evenly spaced u give p", even, p, 1.001 / DRAWS),
        ),
    )
