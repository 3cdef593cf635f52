"""A vocabulary as tokenizer.json: each character is a token, with the same id as in gptx.

The library tokenizers reads it; transformers does with it what tokenizer_config.json says.
"""

from __future__ import annotations

from typing import Any

from gpt.vocabulary import Vocabulary

#: No token of the vocabulary, as it has several characters: a character that the model does not
#: know is then an error, as in gptx, and is not silently left out.
UNKNOWN = "<unknown>"


def tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    """The content of tokenizer.json."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,  # text is never changed
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"[\s\S]"},  # "." does not match a newline
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {"type": "Fuse"},  # nothing between characters
        "model": {
            "type": "WordLevel",
            "vocab": {character: number for number, character in enumerate(vocabulary.characters)},
            "unk_token": UNKNOWN,
        },
    }


def tokenizer_config(longest: int) -> dict[str, Any]:
    """The content of tokenizer_config.json. longest: characters of the model's context."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
