"""Tokens of other programs that are single characters.

A model can be imported only if every text becomes one token a character, in the same order. That
follows from a tokenizer's parts; it is refused if it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpt.words import shown

#: Regular expressions that match any one character, a newline, too.
ANY_CHARACTER = (r"[\s\S]", r"[\S\s]", r"(?s).", r"(?s:.)", r".|\n", r"[\w\W]", r"[\d\D]")
SPACE_OF_BYTES = "\u0120"  # how byte-level tokenizers write a space


def check_characters(tokens: Sequence[Any]) -> None:
    """Raises ValueError unless all tokens are different single characters."""
    for token in tokens:
        if not isinstance(token, str) or len(token) != 1 or 0xD800 <= ord(token) < 0xE000:
            it = shown(token)
            raise ValueError(f"its token {it} is not a character; gptx is character-level")
    if len(set(tokens)) != len(tokens):
        raise ValueError("two ids have the same character")


def characters_of(tokenizer: Mapping[str, Any]) -> tuple[dict[str, int], list[str]]:
    """Character -> id, and the special tokens, of the content of a tokenizer.json.

    Raises ValueError if some tokens may be more or less than a character.
    """
    model = tokenizer.get("model")
    model = model if isinstance(model, dict) else {}
    vocab, kind = model.get("vocab"), model.get("type", "BPE" if "merges" in model else None)
    if kind == "Unigram" and isinstance(vocab, list):
        pairs = (pair if isinstance(pair, list) and pair else [None] for pair in vocab)
        vocab = {text: id for id, (text, *_) in enumerate(pairs) if isinstance(text, str)}
    if kind not in ("WordLevel", "BPE", "Unigram"):
        raise ValueError(f"its tokenizer {shown(kind)} is not WordLevel, BPE or Unigram")
    if not isinstance(vocab, dict):
        raise ValueError(f"its tokenizer {kind} has no vocabulary")
    special = _special(tokenizer)
    if isinstance(unknown := model.get("unk_token"), str):
        special.add(unknown)
    ids = {token: id for token, id in vocab.items() if token not in special}
    if not all(type(id) is int and id >= 0 for id in vocab.values()):
        raise ValueError("its tokenizer has ids that are no whole numbers")
    if model.get("merges") or any(model.get(name) for name in _PARTS_OF_WORDS):
        raise ValueError("its tokens are parts of words (BPE); gptx is character-level")
    _check_steps(tokenizer, kind, ids)
    check_characters([*ids])
    if not ids or len(set(ids.values())) < len(ids):
        raise ValueError("its tokenizer has no characters, or two with one id")
    return ids, sorted(special & vocab.keys())


_PARTS_OF_WORDS = ("byte_fallback", "continuing_subword_prefix", "end_of_word_suffix", "dropout")


def _special(tokenizer: Mapping[str, Any]) -> set[str]:
    """The tokens that stand for no text, such as the end of one. Raises ValueError for others that
    were added: they are found in a text before its characters.
    """
    added = tokenizer.get("added_tokens") or []
    every = added if isinstance(added, list) else [added]
    every = [each if isinstance(each, dict) else {} for each in every]
    if not all(each.get("special") is True for each in every):
        raise ValueError("its tokenizer has added tokens, which may be more than a character")
    return {str(each.get("content")) for each in every}


#: A template of post-processing that returns the text as it is.
_NOTHING_ADDED = [{"Sequence": "A"}]


def _kept(part: Any) -> Any:
    """A part of a template without its `type_id`, which GPT-2 does not use."""
    if not isinstance(part, dict):
        return part
    return {kind: it.get("id") if isinstance(it, dict) else it for kind, it in part.items()}


def _check_steps(tokenizer: Mapping[str, Any], kind: str, ids: Mapping[str, int]) -> None:
    """Raises ValueError for steps that change the text, or that do not leave one character."""
    after = tokenizer.get("post_processor") or {"single": _NOTHING_ADDED}
    single = after.get("single") if isinstance(after, dict) else None
    nothing_added = isinstance(single, list) and [_kept(each) for each in single] == _NOTHING_ADDED
    for name, changes in (
        ("normalizer", tokenizer.get("normalizer") is not None),
        ("post_processor", not nothing_added),
    ):
        if changes:
            raise ValueError(f"its tokenizer has a {name}, which changes texts; gptx never does")
    before = tokenizer.get("pre_tokenizer")
    pattern = before.get("pattern") if isinstance(before, dict) else None
    alone = (
        isinstance(before, dict)
        and before.get("type") == "Split"
        and before.get("behavior") == "Isolated"
        and isinstance(pattern, dict)
        and pattern.get("Regex") in ANY_CHARACTER
    )
    if SPACE_OF_BYTES in ids and " " not in ids:
        raise ValueError("its tokens are bytes; gptx is character-level")
    if not alone and (before is not None or kind == "WordLevel"):
        raise ValueError("its pre_tokenizer does not split texts into characters")
