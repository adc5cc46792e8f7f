"""A secret never reaches a log, however the reads cut it."""

from __future__ import annotations

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pairuntime.supervisor.masking import MASK, Masker

# Few letters, so that secrets repeat, overlap and contain each other; the mask's own letter too.
_LETTERS = st.sampled_from(b"abc*")
_TEXT = st.lists(_LETTERS, max_size=60).map(bytes)
_SECRETS = st.lists(st.lists(_LETTERS, min_size=4, max_size=7).map(bytes), min_size=1, max_size=3)


def _through(secrets: list[bytes], chunks: list[bytes]) -> bytes:
    masker = Masker(secrets)
    return b"".join(masker.feed(chunk) for chunk in chunks) + masker.flush()


def _cut(text: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(c % (len(text) + 1) for c in cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(at)]


def _by_definition(secrets: list[bytes], text: bytes) -> bytes:
    """Every byte of every occurrence is covered; occurrences that overlap share a mask."""
    spans = sorted(
        (at, at + len(secret)) for secret in secrets for at in range(len(text)) if text.startswith(secret, at)
    )
    out, done = b"", 0
    for start, stop in spans:
        if start >= done:
            out += text[done:start] + MASK
        done = max(done, stop)
    return out + text[done:]


@settings(deadline=None)
@given(_SECRETS, _TEXT, st.lists(st.integers(0, 60), max_size=8))
@example([b"aaaa", b"aaaab"], b"aaaab", [4])
@example([b"abca", b"cabc"], b"abcabc", [4])
@example([b"abab"], b"ababab", [4])
def test_masked_output_does_not_depend_on_the_split_of_reads(
    secrets: list[bytes], text: bytes, cuts: list[int]
) -> None:
    assert _through(secrets, _cut(text, cuts)) == _by_definition(secrets, text)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20), max_size=8))
def test_without_secrets_every_byte_passes_at_once(chunks: list[bytes]) -> None:
    masker = Masker([])
    assert [masker.feed(chunk) for chunk in chunks] == chunks
    assert masker.flush() == b""


def test_ordinary_text_is_not_held_back() -> None:
    assert Masker([b"secret-value"]).feed(b"epoch 1\n") == b"epoch 1\n"


def test_very_short_secret_is_not_masked() -> None:
    assert _through([b"abc", b""], [b"abc abc"]) == b"abc abc"


def test_multi_line_secret_is_masked() -> None:
    assert _through([b"line one\nline two"], [b"<line one", b"\nline", b" two>"]) == b"<" + MASK + b">"
