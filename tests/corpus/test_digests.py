"""Names of texts: published numbers, and the same for whatever pieces they come in."""

from __future__ import annotations

import pytest

from gpt.corpus.digests import ALGORITHMS, TODAY, Digest, algorithm_of, short

#: What BLAKE3's and SHA-2's authors publish for "abc".
ABC = {
    "blake3": "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_text_is_named_by_its_bytes_and_how_they_were_hashed(algorithm: str) -> None:
    digest = Digest(algorithm)
    for part in (b"a", b"", b"bc"):
        digest.update(part)
    assert digest.name() == f"{algorithm}:{ABC[algorithm]}"
    assert algorithm_of(digest.name()) == algorithm
    assert short(digest.name()) == ABC[algorithm][:16]


def test_what_no_release_has_written_is_named_todays_way() -> None:
    assert algorithm_of("") == algorithm_of("md5:00") == TODAY
