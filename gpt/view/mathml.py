"""Formulas of lessons as MathML, which browsers draw without a page's scripts and fonts."""

from __future__ import annotations

import re

from gpt.view.html import escape_html

#: Small letters and digits -> the element that places them, and the characters that they stand for.
SMALL = {"ᵀ": ("msup", "T"), "ᵗ": ("msup", "t"), "²": ("msup", "2")}
SMALL |= {"₁": ("msub", "1"), "₂": ("msub", "2")}
WORD = "[^\\W\\d_ᵀᵗ²₁₂](?:[^\\Wᵀᵗ²₁₂]|-(?=\\w))*′?"
TOKEN = re.compile(f"( *)({WORD}|\\d[\\d.]*|\\+=|\\S)")
GAP = '<mspace width="0.28em"></mspace>'
CLOSING = {"(": ")", "[": "]", "|": "|"}
REMARKS = ("at", "for", "where")  # words after a product that do not belong to it
PRODUCTS, OPERATORS = "·×⊗/", {*"+−±=←≤<>,:", "+="}


def mathml_of(formulas: str) -> list[str]:
    """Each formula as MathML, or as text if it contains what is not mathematics, such as code."""
    return [_math(each) for each in re.split(" {4,}(?!#)|\n", formulas) if each.strip()]


def _math(formula: str) -> str:
    try:
        return f'<math display="block">{_Reader(formula).sequence()}</math>'
    except ValueError:
        return f"<code>{escape_html(formula.strip())}</code>"


class _Reader:
    """Reads a formula from left to right. Methods raise ValueError for anything unknown."""

    def __init__(self, formula: str) -> None:
        self.tokens = [*TOKEN.findall(formula), ("", "")]
        self.inside: dict[str, str] = {}  # markup of a bracket -> markup of what it contains

    @property
    def next(self) -> str:
        return str(self.tokens[0][1])

    def take(self) -> str:
        return str(self.tokens.pop(0)[1])

    def sequence(self, end: str = "") -> str:
        """Products and the operators between them."""
        found, after_product = "", False
        while self.next != end:
            if self.next in OPERATORS:
                found, after_product = f"{found}<mo>{escape_html(self.take())}</mo>", False
            else:
                found, after_product = found + GAP * after_product + self.product(), True
        return found

    def product(self) -> str:
        """Factors; "/" divides everything to its left by the factor to its right."""
        left = self.factor()
        while self.next and self.next in PRODUCTS:
            operator, right = self.take(), self.factor()
            bare = (self.inside.get(each, f"<mrow>{each}</mrow>") for each in (left, right))
            divided = operator == "/"
            left = _element("mfrac", *bare) if divided else f"{left}<mo>{operator}</mo>{right}"
        return left

    def factor(self) -> str:
        """A name, a number or a bracket, with everything attached to it, and words after it."""
        token = self.take()
        if token in ("√", "Σ", "∂"):
            found = self.factor()
            root = _element("msqrt", self.inside.get(found, found))
            return root if token == "√" else f"<mo>{token}</mo>{found}"
        if token in CLOSING:
            found = self.bracket(token)
        elif re.fullmatch(WORD, token):
            base, _, index = token.partition("_")
            indexed = _element("msub", f"<mi>{base}</mi>", f"<mi>{index}</mi>")
            found = indexed if index and len(base) == 1 else f"<mi>{token}</mi>"
        elif re.fullmatch(r"…|∞|\d[\d.]*", token):
            found = f"<mn>{token}</mn>"
        else:
            raise ValueError(token)
        return self.attached(found)

    def bracket(self, opening: str) -> str:
        """What an opening bracket encloses, up to its closing one."""
        inside, closing = self.sequence(CLOSING[opening]), self.take()
        found = f"<mrow><mo>{opening}</mo>{inside}<mo>{closing}</mo></mrow>"
        self.inside[found] = f"<mrow>{inside}</mrow>"
        return found

    def attached(self, found: str) -> str:
        """A factor with its indices, exponents and arguments, and words after it."""
        while True:
            space, token = self.tokens[0]
            if token in SMALL:
                element, small = SMALL[self.take()]
                if element == "msup" and found.startswith("<msub>"):
                    element, found = "msubsup", found[len("<msub>") : -len("</msub>")]
                found = _element(element, found, f"<mi>{small}</mi>")
            elif token == "[":
                self.take()
                found = _element("msub", found, f"<mrow>{self.sequence(']')}</mrow>")
                self.take()
            elif token == "^":
                self.take()
                power = self.factor()
                found = _element("msup", found, self.inside.get(power, power))
            elif token == "(" and not space:
                found = _element("mrow", found, self.bracket(self.take()))
            elif token not in REMARKS and (token == "∂" or re.fullmatch(WORD, token)):
                return found + GAP * bool(space) + self.factor()
            else:
                return found


def _element(name: str, *parts: str) -> str:
    return f"<{name}>{''.join(parts)}</{name}>"
