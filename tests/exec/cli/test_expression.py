"""Views written as text against the same views made in Python."""

from __future__ import annotations

import numpy as np
import pytest

from tapestry_exec.cli.expression import parse_views
from tests.oracles import memory_for, read_view


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", lambda a: a),
        ("A[1]", lambda a: a[1]),
        ("A[-1, ::-2]", lambda a: a[-1, ::-2]),
        ("A[..., None, 2:5]", lambda a: a[..., None, 2:5]),
        ("A[:, newaxis]", lambda a: a[:, None]),
        ("A.T[1:]", lambda a: a.T[1:]),
        ("A.reshape(2, -1)", lambda a: a.reshape(2, -1)),
        ("A.reshape((3, 8)).transpose()", lambda a: a.reshape(3, 8).T),
        ("A.permute_dims((1, 0)).flip(0)", lambda a: a.T[::-1]),
        ("A[:1].squeeze(0)", lambda a: a[:1].squeeze(0)),
        ("A.expand_dims(1)", lambda a: np.expand_dims(a, 1)),
        ("A[:, :1].broadcast_to((2, 4, 3))", lambda a: np.broadcast_to(a[:, :1], (2, 4, 3))),
        ("A.diagonal(offset=1)", lambda a: a.diagonal(1)),
        ("A.ravel()[5::7]", lambda a: a.ravel()[5::7]),
        ("concatenate([A[2:], A[:2]], axis=0)", lambda a: np.concatenate([a[2:], a[:2]])),
        ("stack([A, A.flip(1)])", lambda a: np.stack([a, a[:, ::-1]])),
        ("interleave([A[0], A[1]])", lambda a: np.stack([a[0], a[1]], 1).ravel()),
        ("pad(A, 1, 'edge')", lambda a: np.pad(a, 1, "edge")),
        ("repeat(A, 2, 1)", lambda a: np.repeat(a, 2, 1)),
        ("roll(A, -2, 1)", lambda a: np.roll(a, -2, 1)),
        ("tile(A, (2, 1))", lambda a: np.tile(a, (2, 1))),
        ("A.take([3, 0, 1], 0).swapaxes(0, 1)", lambda a: a[[3, 0, 1]].T),
        ("A[[0, 2]][:, [5, 3]]", lambda a: a[[0, 2]][:, [5, 3]]),
        ("A.split(2, 1)[1]", lambda a: a[:, 3:]),
        ("vstack([A, A[:1]])", lambda a: np.vstack([a, a[:1]])),
        ("A.ravel().sample(Sett(Stripe(1, 2), Stripe(1, 0)))", lambda a: a.ravel()[::3]),
        ("B = A[1:]; B[::2]", lambda a: a[1:][::2]),
        ("A.sliding_windows((2, 3), step=2)", lambda a: np.lib.stride_tricks.sliding_window_view(a, (2, 3))[::2, ::2]),
    ],
)
def test_text_means_what_numpy_means(text, expected) -> None:  # type: ignore[no-untyped-def]
    ((_, view),) = parse_views(f"A[4, 6]; {text}")
    memory = memory_for([view])
    array = np.arange(1, 25).reshape(4, 6)
    np.testing.assert_array_equal(read_view(view, memory), expected(array))


def test_lines_and_semicolons_separate_and_texts_are_kept() -> None:
    found = parse_views("A[8]\nB = A[::2]\n\nB; A[ 1: ]")
    assert [text for text, _ in found] == ["B", "A[1:]"]
    assert [view.shape for _, view in found] == [(4,), (7,)]


def test_memory_of_every_rank() -> None:
    ((_, view),) = parse_views("A[2, 3, 4, 5]; A")
    assert view.shape == (2, 3, 4, 5)


def test_declarations_are_made_once() -> None:
    """The second A[3] is a view, a cell."""
    ((_, view),) = parse_views("A[9]; A[3]")
    assert view.shape == ()
