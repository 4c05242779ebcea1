"""Many random cases against enumeration by the definition, and against isl where nothing can be enumerated.

Each case is drawn from its family's name and its number alone, so that a failure names all that is needed to
see it again. By default each family runs a fixed sample; ``pytest --all`` runs all of it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from math import lcm
from operator import and_, or_
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tapestry_sets import DisjointSetts, Sett, Stripe, TooHard
from tapestry_sets.integers import nest, sett, stripe, tuning
from tapestry_sets.solvers import isl

Levels = tuple[tuple[int, int, int], ...]
"""Nested stripes (on, off, phase), outermost first."""
Bools = np.ndarray[Any, np.dtype[np.bool_]]

PAIRS_PER_DEPTH = 20_000
RELATED, EXPLICIT, UNIONS, CONJUNCTIONS, SCALED, WITH_ISL = 16_000, 10_000, 4_000, 6_000, 10_000, 4_000
DEFAULT_SHARE = 20
"""By default one case in this many is run."""
BIG = 10**9


def cases(request: pytest.FixtureRequest, total: int) -> range:
    """Return the numbers of the cases to run."""
    return range(total if request.config.getoption("--all") else total // DEFAULT_SHARE)


# ---------------------------------------------------------------------------------------------- what is drawn


def drawn(rng: random.Random, depth: int, on: int = 64) -> Levels:
    """Draw nested stripes whose periods are at most a little longer than the block that they are in."""
    levels = []
    while len(levels) < depth and on >= 2:
        period = 2 + rng.randrange(1 << 30) % max(2, on)
        on = 1 + rng.randrange(1 << 30) % period
        levels.append((on, period - on or 1, rng.randrange(1 << 30) % period))
    return tuple(levels)


def related(rng: random.Random, levels: Levels) -> Levels:
    """Draw nested stripes that have much to do with others: the same but for a level, a phase or a length."""
    at = rng.randrange(len(levels))
    on, off, phase = levels[at]
    changed = {
        "fewer levels": levels[: at + 1],
        "one more level": (*levels, *drawn(rng, 1, max(2, levels[-1][0]))),
        "moved": (*levels[:at], (on, off, phase + rng.randrange(1, on + off)), *levels[at + 1 :]),
        "longer": (*levels[:at], (on + off, off, phase), *levels[at + 1 :]),
        "shorter": (*levels[:at], (max(1, on - 1), off + min(1, on - 1), phase), *levels[at + 1 :]),
        "half as often": (*levels[:at], (on, 2 * off + on, phase), *levels[at + 1 :]),
        "restarted": ((2 * (levels[0][0] + levels[0][1]), 0, rng.randrange(9)), *levels),
        "the same": levels,
    }
    return changed[rng.choice(sorted(changed))]


def window(rng: random.Random, longest: int = 3000) -> tuple[int, int]:
    """Draw a window [lo, hi) around zero, empty and short ones among them."""
    lo = rng.randrange(-500, 500)
    return lo, lo + rng.choice([0, 1, rng.randrange(20), rng.randrange(200), rng.randrange(longest)])


def sett_of(levels: Levels) -> Sett:
    return Sett(*(Stripe(*level) for level in levels))


# ---------------------------------------------------------------------------------------------- what is believed


def held(levels: Sequence[tuple[int, int, int]], lo: int, hi: int) -> Bools:
    """Return for each integer in [lo, hi) whether it is in nested stripes, level by level as they are defined."""
    z = np.arange(lo, hi, dtype=np.int32)
    keep = np.ones(len(z), bool)
    for on, off, phase in levels:
        z = (z - phase) % (on + off)
        keep &= z < on
    return keep


def held_by_members(answer: DisjointSetts, lo: int, hi: int) -> Bools:
    """Return for each integer in [lo, hi) whether it is in a union; its members must share none of these."""
    times = np.zeros(hi - lo, int)
    for member in answer.members:
        times += held([(s.on, s.off, s.phase) for s in member.stripes], lo, hi)
    assert times.max(initial=0) <= 1, f"members of {answer!r} share {lo + int(np.argmax(times > 1))}"
    return times == 1


def period(*every: Levels) -> int:
    return lcm(*(levels[0][0] + levels[0][1] for levels in every if levels))


def period_error(keep: Bools, shift: int) -> str | None:
    """Say where a set is not periodic, if it is not."""
    wrong = np.flatnonzero(keep[shift:] != keep[:-shift])
    return f"{shift} is not a period, see place {wrong[0]}" if len(wrong) else None


def first_of(keep: Bools, lo: int) -> int | None:
    return lo + int(keep.argmax()) if keep.any() else None


def check(what: str, answers: dict[str, tuple[object, object]]) -> None:
    """Assert that each answer is the one that is believed; the message names the case."""
    wrong = {name: f"{got} instead of {wanted}" for name, (got, wanted) in answers.items() if got != wanted}
    assert not wrong, f"{what}: {wrong}"


# ---------------------------------------------------------------------------------------------- two nests


def check_questions(what: str, one: Levels, two: Levels, lo: int, hi: int) -> None:
    """Ask everything about two setts that needs no pieces, on the line and in a window."""
    s, t, common = sett_of(one), sett_of(two), period(one, two)
    shared = lcm(s.period, t.period)  # a tight form may have a shorter period
    a, b = held(one, lo, lo + common), held(two, lo, lo + common)
    u, v = held(one, lo, hi), held(two, lo, hi)
    inside = (lo, hi)
    check(
        f"{what}: {s!r} and {t!r} in [{lo}, {hi})",
        {
            "isdisjoint": (s.isdisjoint(t), not (a & b).any()),
            "first_common": (s.first_common(t, lo), first_of(a & b, lo)),
            "count_common": (s.count_common(t) * (common // shared), int((a & b).sum())),
            "a common period": (
                "longer" if common % shared else period_error(a, s.period) or period_error(b, t.period),
                None,
            ),
            "<=": (s <= t, not (a & ~b).any()),
            ">=": (s >= t, not (b & ~a).any()),
            "same_points": (s.same_points(t), bool((a == b).all())),
            "is_empty": (s.is_empty, not a.any()),
            "count_common of a range": (s.count_common(t, lo, hi), int((u & v).sum())),
            "first_common of a range": (s.first_common(t, lo, hi), first_of(u & v, lo)),
            "isdisjoint within": (s.isdisjoint(t, within=inside), not (u & v).any()),
            "issubset within": (s.issubset(t, within=inside), not (u & ~v).any()),
            "same_points within": (s.same_points(t, within=inside), bool((u == v).all())),
            "count": (s.count(lo, hi), int(u.sum())),
            "elements": (s.elements(lo, hi).tolist(), (lo + np.flatnonzero(u)).tolist()),
            "elements of both": ((s & t).elements(lo, hi).tolist(), (lo + np.flatnonzero(u & v)).tolist()),
        },
    )


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_random_pairs_of_nests_are_answered_as_enumerated(request: pytest.FixtureRequest, depth: int) -> None:
    for case in cases(request, PAIRS_PER_DEPTH):
        rng = random.Random(f"pairs {depth} {case}")
        one, two = drawn(rng, depth), drawn(rng, depth if rng.random() < 0.7 else rng.randint(1, 4))
        check_questions(f"pairs {depth} {case}", one, two, *window(rng))


def test_random_pairs_of_related_nests_are_answered_as_enumerated(request: pytest.FixtureRequest) -> None:
    for case in cases(request, RELATED):
        rng = random.Random(f"related {case}")
        one = drawn(rng, rng.randint(1, 4))
        two = related(rng, one)
        if rng.random() < 0.5:
            one, two = two, one
        check_questions(f"related {case}", one, two, *window(rng))


def test_random_explicit_answers_are_disjoint_setts_of_the_enumerated_points(request: pytest.FixtureRequest) -> None:
    for case in cases(request, EXPLICIT):
        rng = random.Random(f"explicit {case}")
        one = drawn(rng, rng.randint(1, 4), rng.choice([8, 24, 64]))
        two = related(rng, one) if rng.random() < 0.3 else drawn(rng, rng.randint(1, 4), rng.choice([8, 24, 64]))
        check_algebra(f"explicit {case}", one, two, *window(rng))


def check_algebra(what: str, one: Levels, two: Levels, lo: int, hi: int) -> None:
    """List the pieces of each operation on two setts, on the line and in a window."""
    s, t = sett_of(one), sett_of(two)
    end = lo + period(one, two)
    a, b, u, v = held(one, lo, end), held(two, lo, end), held(one, lo, hi), held(two, lo, hi)
    inside = (lo, hi)
    answers: dict[str, tuple[DisjointSetts, Bools, int]] = {
        "&": ((s & t).setts(), a & b, end),
        "|": (s | t, a | b, end),
        "-": (s - t, a & ~b, end),
        "^": (s ^ t, a ^ b, end),
        "~": (~s, ~a, end),
        "& within": ((s & t).setts(within=inside), u & v, hi),
        "union within": (s.union(t, within=inside), u | v, hi),
        "difference within": (s.difference(t, within=inside), u & ~v, hi),
    }
    for name, (answer, wanted, stop) in answers.items():
        found = held_by_members(answer, lo, stop)
        wrong = first_of(found != wanted, lo)
        assert wrong is None, f"{what}: {s!r} {name} {t!r} in [{lo}, {hi}): {answer!r} is wrong at {wrong}"


# ---------------------------------------------------------------------------------------------- several nests


def test_random_unions_are_answered_as_enumerated(request: pytest.FixtureRequest) -> None:
    for case in cases(request, UNIONS):
        rng = random.Random(f"unions {case}")
        ours, theirs = ([drawn(rng, rng.randint(1, 3), 12) for _ in range(rng.randint(1, 3))] for _ in range(2))
        check_unions(f"unions {case}", ours, theirs, *window(rng, 1000))


def check_unions(what: str, ours: list[Levels], theirs: list[Levels], lo: int, hi: int) -> None:
    """Ask about two unions and list the pieces of operations on them, on the line if it is short."""
    inside = (lo, hi)
    s, t = (reduce(lambda x, y: x.union(y, within=inside), map(sett_of, x), DisjointSetts()) for x in (ours, theirs))
    u, v = (reduce(or_, (held(levels, lo, hi) for levels in x)) for x in (ours, theirs))
    check(
        f"{what}: unions of {ours} and {theirs} in [{lo}, {hi})",
        {
            "union": (held_by_members(s, lo, hi).tolist(), u.tolist()),
            "intersection": (held_by_members((s & t).setts(inside), lo, hi).tolist(), (u & v).tolist()),
            "difference": (held_by_members(s.difference(t, inside), lo, hi).tolist(), (u & ~v).tolist()),
            "count": (s.count(lo, hi), int(u.sum())),
            "elements": (s.elements(lo, hi).tolist(), (lo + np.flatnonzero(u)).tolist()),
            "count_common": (s.count_common(t, lo, hi), int((u & v).sum())),
            "first_common": (s.first_common(t, lo, hi), first_of(u & v, lo)),
            "isdisjoint": (s.isdisjoint(t, inside), not (u & v).any()),
            "issubset": (s.issubset(t, inside), not (u & ~v).any()),
            "same_points": (s.same_points(t, inside), bool((u == v).all())),
        },
    )
    if period(*ours, *theirs) <= 10_000:
        check_unions_on_the_line(what, ours, theirs, lo, lo + period(*ours, *theirs))


def check_unions_on_the_line(what: str, ours: list[Levels], theirs: list[Levels], lo: int, end: int) -> None:
    s, t = (reduce(or_, map(sett_of, x)) for x in (ours, theirs))
    a, b = (reduce(or_, (held(levels, lo, end) for levels in x)) for x in (ours, theirs))
    check(
        f"{what}: unions of {ours} and {theirs} on the line",
        {
            "|": (held_by_members(s | t, lo, end).tolist(), (a | b).tolist()),
            "-": (held_by_members(s - t, lo, end).tolist(), (a & ~b).tolist()),
            "^": (held_by_members(s ^ t, lo, end).tolist(), (a ^ b).tolist()),
            "&": (held_by_members((s & t).setts(), lo, end).tolist(), (a & b).tolist()),
            "<=": (s <= t, not (a & ~b).any()),
            "isdisjoint": (s.isdisjoint(t), not (a & b).any()),
            "same_points": (s.same_points(t), bool((a == b).all())),
            "find": (s.find(lo), first_of(a, lo)),
            "first_common": (s.first_common(t, lo), first_of(a & b, lo)),
        },
    )


def test_random_conjunctions_are_answered_as_enumerated(request: pytest.FixtureRequest) -> None:
    for case in cases(request, CONJUNCTIONS):
        rng = random.Random(f"conjunctions {case}")
        size = rng.choice([6, 12, 24])
        every = [drawn(rng, rng.randint(1, 3), size) for _ in range(rng.randint(3, 5))]
        check_conjunction(f"conjunctions {case}", every, drawn(rng, 2, size), *window(rng))


def check_conjunction(what: str, every: list[Levels], other: Levels, lo: int, hi: int) -> None:
    """Ask about an intersection of several setts in a window, and on the line if it is short."""
    met = reduce(and_, map(sett_of, every), Sett() & Sett())
    t, inside = sett_of(other), (lo, hi)
    u, v = reduce(and_, (held(levels, lo, hi) for levels in every)), held(other, lo, hi)
    answers: dict[str, tuple[object, object]] = {
        "count": (met.count(lo, hi), int(u.sum())),
        "first": (met.first(lo, hi), first_of(u, lo)),
        "elements": (met.elements(lo, hi).tolist(), (lo + np.flatnonzero(u)).tolist()),
        "setts": (held_by_members(met.setts(inside), lo, hi).tolist(), u.tolist()),
        "isdisjoint": (met.isdisjoint(t, inside), not (u & v).any()),
        "issubset": (met.issubset(t, inside), not (u & ~v).any()),
        "of the other": (t.issubset(met, inside), not (v & ~u).any()),
    }
    common = period(*every)
    if common <= 20_000:
        a = reduce(and_, (held(levels, lo, lo + common) for levels in every))
        answers["is_empty"] = (met.is_empty, not a.any())
        answers["count on the line"] = (met.count() * common // met.period, int(a.sum()))
        answers["find"] = (met.find(lo), first_of(a, lo))
        answers["setts on the line"] = (held_by_members(met.setts(), lo, lo + common).tolist(), a.tolist())
    check(f"{what}: {' & '.join(repr(sett_of(s)) for s in every)} and {t!r} in [{lo}, {hi})", answers)


# ---------------------------------------------------------------------------------------------- any size


class Enumerated(AssertionError):
    """A long stretch of integers was listed."""


MOST = 1 << 16
"""Nothing longer may be listed where listing is forbidden."""


def forbidding(module: ModuleType, name: str, length: Callable[..., int]) -> list[Any]:
    """Return patches that make a function raise where it would list more than `MOST` integers, wherever it is known."""
    plain = getattr(module, name)

    def guarded(*args: Any, **kwargs: Any) -> Any:
        if length(*args, **kwargs) > MOST:
            raise Enumerated(f"{name}{args}")
        return plain(*args, **kwargs)

    ours = [m for key, m in sys.modules.items() if key.partition(".")[0] == "tapestry_sets"]
    places = [(m, key) for m in ours for key, value in vars(m).items() if value is plain]
    return [mock.patch.object(m, key, guarded) for m, key in places]


@contextmanager
def nothing_listed_and_no_isl() -> Iterator[None]:
    """Forbid isl, and lists and masks of long stretches."""
    patches = [
        *forbidding(nest, "bits", lambda s, lo, hi: hi - lo if s else 0),
        *forbidding(nest, "elements", nest.count),
        *forbidding(stripe, "elements_between", lambda levels, first, last: nest.count(levels, first, last + 1)),
        mock.patch.multiple(tuning, BITS_AN_ENTRY=1, BITS_A_TURN=1e-9),  # masks are dear: other ways count
        mock.patch.object(isl, "available", lambda: False),
        mock.patch.object(isl, "_islpy", mock.Mock(side_effect=ImportError("islpy is blocked"))),
    ]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()


def test_lists_and_isl_are_truly_forbidden() -> None:
    s, t = Sett(Stripe(6, 1), Stripe(2, 1)), Sett(Stripe(1, 4))
    with nothing_listed_and_no_isl():
        for ask in (
            lambda: s.elements(0, BIG),
            lambda: (s & t).elements(0, 10 * MOST),
            lambda: Stripe(1, 4).elements(0, BIG),
            lambda: nest.bits(s.nest, 0, BIG),
            lambda: sett.nests.bits(s.nest, 0, BIG),
        ):
            with pytest.raises(Enumerated):
                ask()
        with pytest.raises(ImportError, match="blocked"):
            isl.nest_set(s.nest)
    assert len(s.elements(0, 2 * MOST)) == s.count(0, 2 * MOST)


def test_scaled_pairs_of_nests_are_answered_without_lists_or_isl(request: pytest.FixtureRequest) -> None:
    """Blocks of 10⁹ where single integers were, one set moved by a part of a block.

    Block q of the one set meets block q of the other in all but `part` integers, and block q - 1 in `part`.
    """
    with nothing_listed_and_no_isl():
        for case in cases(request, SCALED):
            rng = random.Random(f"scaled {case}")
            one = drawn(rng, rng.randint(1, 4))
            two = related(rng, one) if rng.random() < 0.3 else drawn(rng, rng.randint(1, 4))
            part = rng.choice([0, 0, 1, BIG - 1, rng.randrange(BIG)])
            check_scaled(f"scaled {case}", one, two, part, *window(rng))


def check_scaled(what: str, one: Levels, two: Levels, part: int, lo: int, hi: int) -> None:
    s, t = sett_of(one).scale(BIG), sett_of(two).scale(BIG).shift(part)
    start, stop = BIG * lo + part, BIG * hi + part
    end = lo + period(one, two)
    a, b, late = held(one, lo, end + 1), held(two, lo, end), held(one, lo + 1, end + 1)
    u, v, late_u = held(one, lo, hi), held(two, lo, hi), held(one, lo + 1, hi + 1)
    # of the integers of block q of `two`, all but `part` are in block q of `one` and the others in block q + 1
    same, next_one = a[:-1] & b, late & b
    same_in, next_in = u & v, late_u & v

    def count(same: Bools, later: Bools) -> int:
        return (BIG - part) * int(same.sum()) + part * int(later.sum())

    def first(same: Bools, later: Bools) -> int | None:
        hits = [BIG * q + part for q in [first_of(same, lo)] if q is not None]
        hits += [BIG * (q + 1) for q in [first_of(later, lo)] if q is not None and part]
        return min(hits, default=None)

    whole_line = first(same, next_one)
    check(
        f"{what}: {BIG} times {one} and {two}, the latter {part} later, in [{start}, {stop})",
        {
            "isdisjoint": (s.isdisjoint(t), whole_line is None),
            "first_common": (s.first_common(t, start), whole_line),
            "count_common": (s.count_common(t) * BIG * (end - lo) // lcm(s.period, t.period), count(same, next_one)),
            "<=": (t <= s, count(same, next_one) == BIG * int(b.sum())),
            "count_common of a range": (s.count_common(t, start, stop), count(same_in, next_in)),
            "first_common of a range": (s.first_common(t, start, stop), first(same_in, next_in)),
            "isdisjoint within": (s.isdisjoint(t, (start, stop)), first(same_in, next_in) is None),
            "issubset within": (t.issubset(s, (start, stop)), count(same_in, next_in) == BIG * int(v.sum())),
            "count": (t.count(start, stop), BIG * int(v.sum())),
            "find": (t.find(start), None if not b.any() else BIG * (lo + int(b.argmax())) + part),
        },
    )


def test_scaled_conjunctions_are_answered_without_lists_or_isl(request: pytest.FixtureRequest) -> None:
    with nothing_listed_and_no_isl():
        for case in cases(request, CONJUNCTIONS):
            rng = random.Random(f"scaled conjunctions {case}")
            every = [drawn(rng, rng.randint(1, 2), 12) for _ in range(rng.randint(3, 4))]
            met = reduce(and_, (sett_of(s).scale(BIG) for s in every), Sett() & Sett())
            lo, hi = window(rng)
            u = reduce(and_, (held(s, lo, hi) for s in every))
            first = first_of(u, lo)
            check(
                f"scaled conjunctions {case}: {BIG} times {every} in [{lo}, {hi})",
                {
                    "first": (met.first(BIG * lo, BIG * hi), None if first is None else BIG * first),
                    "count": (met.count(BIG * lo, BIG * hi), BIG * int(u.sum())),
                },
            )


# ---------------------------------------------------------------------------------------------- isl


def long_nest(rng: random.Random) -> Levels:
    """Draw nested stripes of periods up to 10¹² and, at times, beyond 64 bits."""
    period = int(10 ** rng.uniform(1, rng.choice([4, 8, 12, 25])))
    levels = []
    for _ in range(rng.randint(1, 3)):
        period = max(2, period)
        on = rng.choice([1, period // 2, period - 1, rng.randrange(1, period), rng.randrange(1, period)]) or 1
        levels.append((on, period - on, rng.randrange(period)))
        period = rng.choice([on, max(2, on // rng.randint(2, 9)), rng.randint(2, 40)])
        if period > on or on < 2:
            break
    return tuple(levels)


def isl_text(levels: Levels, extra: str = "true") -> str:
    """Return nested stripes in isl's notation: z - phase - period k is in the block, and so on inside."""
    rest, names, conditions = "z", [], [extra]
    for at, (on, off, phase) in enumerate(levels):
        names.append(f"k{at}")
        rest = f"{rest} - {phase} - {on + off} k{at}"
        conditions.append(f"0 <= {rest} < {on}")
    return f"{{ [z] : exists {', '.join(names)} : {' and '.join(conditions)} }}"


def asked(islpy: ModuleType, context: Any, ask: Callable[[], Any]) -> Any:
    """Return isl's answer, or None where it takes long."""
    context.reset_operations()
    context.set_max_operations(200_000)
    try:
        return ask()
    except islpy.Error:
        return None
    finally:
        context.set_max_operations(0)


def ours(ask: Callable[[], Any]) -> Any:
    """Return our answer, or None where it is refused."""
    try:
        return ask()
    except TooHard:
        return None


def test_random_pairs_of_long_nests_are_answered_as_isl_does(request: pytest.FixtureRequest) -> None:
    islpy = pytest.importorskip("islpy")
    context = islpy.Context()
    asked_of_both, refused = 0, []
    for case in cases(request, WITH_ISL):
        rng = random.Random(f"isl {case}")
        one, two = long_nest(rng), long_nest(rng)
        if rng.random() < 0.3:
            two = related(rng, one)
        s, t = sett_of(one), sett_of(two)
        lo = rng.randrange(-(10**12), 10**12)
        hi = lo + int(10 ** rng.uniform(0, 26))
        x, y, line = (
            islpy.Set.read_from_str(context, text)
            for text in (isl_text(one), isl_text(two), f"{{ [z] : {lo} <= z < {hi} }}")
        )
        xy = x & y
        questions = {
            "isdisjoint": (lambda: s.isdisjoint(t), xy.is_empty),  # noqa: B023
            "<=": (lambda: s <= t, lambda: x.is_subset(y)),  # noqa: B023
            "isdisjoint within": (lambda: s.isdisjoint(t, (lo, hi)), lambda: (xy & line).is_empty()),  # noqa: B023
            "issubset within": (lambda: s.issubset(t, (lo, hi)), lambda: (x & line).is_subset(y)),  # noqa: B023
            "first_common": (lambda: s.first_common(t, lo, hi), lambda: smallest(xy & line)),  # noqa: B023
        }
        for name, (mine, theirs) in questions.items():
            wanted = asked(islpy, context, theirs)
            if wanted is None:
                continue
            asked_of_both += 1
            got = ours(mine)
            if got is None and not (name == "first_common" and wanted == "none"):
                refused.append(f"isl {case} {name}")
                continue
            got = "none" if got is None else got
            assert got == wanted, f"isl {case}: {name} of {s!r} and {t!r} in [{lo}, {hi}): {got}, isl says {wanted}"
    assert len(refused) <= asked_of_both / 50, f"{len(refused)} of {asked_of_both} were refused: {refused[:20]}"


def smallest(points: Any) -> int | str:
    if points.is_empty():
        return "none"
    value = points.dim_min_val(0)
    return int(value.to_str())
