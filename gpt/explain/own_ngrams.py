"""How the last characters select a row of the n-gram table: the rule, and a worked example.

The example uses whole numbers, character by character, and is checked against the row that the
reader looks up. Knows no weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.explain.lesson import Step, Table
from gpt.heads.exact_functions import HASH, MODULUS, Order, gram_orders, gram_rows
from gpt.reading.ngram_embedding import ngram_rows
from gpt.vocabulary import Ids


def gram_step(config: ModelConfig, ids: Ids) -> Step:
    """How the rows of a text's n-grams are counted, of (T,) ids."""
    orders = gram_orders(config)
    differ = ngram_rows(config, ids[None])[0] != gram_rows(config, ids)  # (T, N)
    return Step(
        "Which rows n-grams have",
        "A character’s code is its id + 1; before the text it is 0. Begin with the code of the "
        "last. For each character before it, going backwards, multiply by a base and add its code; "
        f"keep what division by 2³¹ − 1 = {MODULUS} leaves. Last, keep what division by the rows "
        f"of that order leaves, and count on from the order’s first row. {_of_bases(orders)}",
        "sum = code[t]    sum = (sum × base + code[t−1]) mod (2³¹ − 1), and so on    "
        "row = sum mod rows + first row",
        (
            Table(
                "bases and rows",
                np.array([(each.base, each.rows, each.first) for each in orders]),
                tuple(f"last {each.order}" for each in orders),
                ("base", "rows", "first row"),
                digits=0,
            ),
        ),
        _written_out(ids, orders),
        (Check("rows of n-grams", float(differ.sum()), 0.0),),
    )


def _sums(order: Order, codes: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Each step from the last character backwards: its formula and its result."""
    total = codes[-1]
    for code in codes[-2 : -order.order - 1 : -1]:
        written = f"{total} × {order.base} + {code}"
        product = total * order.base + code
        total = product % MODULUS
        yield f"({written}) mod {MODULUS}" if product > total else written, total


def _codes(ids: Ids, at: int, order: Order) -> list[int]:
    """Of the last characters up to a position, 0 before the text."""
    known = [int(each) + 1 for each in ids[max(0, at - order.order + 1) : at + 1]]
    return [0] * (order.order - len(known)) + known


def _of_bases(orders: list[Order]) -> str:
    told = []
    if own := {each.base for each in orders} - {HASH}:
        told.append(
            f"The base {min(own)}, the number of codes, gives every n-gram a row of its own."
        )
    if any(each.base == HASH for each in orders):
        told.append(f"The base {HASH} makes a hash of it: some n-grams share a row.")
    return " ".join(told)


def _written_out(ids: Ids, orders: list[Order]) -> str:
    """The last character's rows, worked out: the shortest n-gram's of each base."""
    last, shown = len(ids) - 1, list({each.base: each for each in reversed(orders)}.values())[::-1]
    told = []
    for each in shown:
        codes = _codes(ids, last, each)
        sums = list(_sums(each, codes))
        steps, total = "; ".join(f"{written} = {total}" for written, total in sums), sums[-1][1]
        told.append(
            f"Last {each.order} of position {last}, codes {', '.join(map(str, codes[::-1]))}: "
            f"{steps}; ({total} mod {each.rows}) + {each.first} = {each.row(codes)}."
        )
    return " ".join(told)
