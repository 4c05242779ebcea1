"""Nothing hangs and nothing is wrong: random expressions of random sets, asked everything.

Each question is answered as the expression's own meaning says, integer by integer in a window, or refused as
`TooHard` or `TooManyPieces`; each within seconds of the processor's time, after which it is interrupted; more of
them where the machine is slow at the time. An expression is drawn from its number alone. With ``pytest -s`` the
slowest questions are listed.
"""

from __future__ import annotations

import heapq
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tapestry_sets import DisjointSetts, Sett, Stripe, TooHard, TooManyPieces, limits
from tests.machine_pace import slower
from tests.sets.integers.test_differential import Levels, drawn, long_nest, sett_of

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGVTALRM"), reason="needs interval timers to interrupt")

SECONDS = 2.0
"""How much of the processor's time a question may take."""
EXPRESSIONS, DEFAULT_EXPRESSIONS = 6_000, 60
PLAIN = ("&", "&", "&", "|", "-", "^", "~", "shift", "scale", "reverse")
KINDS = {"plain": PLAIN, "numbered": (*PLAIN, "fill", "fill", "sample", "sample")}
"""The operations of expressions; those of "numbered" ones see sets by the numbers of their elements."""
MAX_PIECES = 300
"""Explicit answers are refused beyond this, so that expressions of expressions stay short."""
FARTHEST = 1500
"""Elements are numbered by listing them from 0 up to this distance."""
Integers = np.ndarray[Any, np.dtype[Any]]
Meaning = Callable[[Integers], Integers]
"""Says for each integer of an array of Python integers whether it is in the set."""


class Unknown(Exception):
    """The meaning cannot be listed so far from zero."""


class TooSlow(Exception):
    """A question was interrupted."""


@dataclass(frozen=True)
class Expression:
    """A set, what it means and how it was made."""

    value: Any
    means: Meaning
    text: str
    near: bool = False  # whether the meaning is known near zero only


# ------------------------------------------------------------------------------------------------ questions


@dataclass
class Report:
    """What became of the questions: how many were asked, and the text of each that went wrong."""

    asked: int = 0
    refused: int = 0
    unknown: int = 0
    wrong: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)

    def ask(
        self, text: str, question: Callable[[], Any], seconds: float = SECONDS, pieces: int = MAX_PIECES
    ) -> tuple[bool, Any]:
        """Return (True, answer), or (False, None) where there is none; interrupt what takes too long."""
        self.asked += 1
        before = signal.signal(signal.SIGVTALRM, interrupt)
        began = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds * slower())
        try:
            with limits(max_pieces=pieces):
                return True, question()
        except (TooHard, TooManyPieces):
            self.refused += 1
        except TooSlow:
            self.slow.append(text)
        except Exception as error:
            if not (isinstance(error, OverflowError) and "do not fit int64" in str(error)):
                self.crashed.append(f"{text}: {type(error).__name__}: {error}")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
            self.slowest = heapq.nlargest(10, [*self.slowest, (time.process_time() - began, text)])
        return False, None

    def judge(self, text: str, right: bool, answer: object) -> None:
        if not right:
            self.wrong.append(f"{text}: {answer}")


def interrupt(number: int, frame: Any) -> None:
    raise TooSlow


# ------------------------------------------------------------------------------------------------ expressions


def array(values: Any) -> Integers:
    return np.array([int(z) for z in values], object)


def in_levels(levels: Levels, z: Integers) -> Integers:
    keep = np.ones(len(z), bool)
    for on, off, phase in levels:
        z = (z - phase) % (on + off)
        keep &= (z < on).astype(bool)
    return keep


def leaf(rng: random.Random) -> Expression:
    """Draw a set: often small, at times of a huge prime period, of many levels, everything or nothing."""
    kind = rng.choice(["small", "small", "small", "long", "long", "prime", "point", "all", "none"])
    if kind in ("all", "none"):
        value = Sett() if kind == "all" else Sett.empty()
        return Expression(value, lambda z: np.full(len(z), kind == "all"), repr(value))
    prime = rng.choice([10007, 100003, 100019, 4294967279, 4294967291, 10**18 + 9])
    on = rng.choice([1, prime // 2, rng.randrange(1, prime)]) if kind == "prime" else 1
    levels = {
        "small": lambda: drawn(rng, rng.randint(1, 3), rng.choice([6, 16, 64])),
        "long": lambda: long_nest(rng),
        "prime": lambda: ((on, prime - on, rng.randrange(prime)), *drawn(rng, rng.randint(0, 1), min(on, 30))),
        "point": lambda: ((1, rng.randint(1, 10**6), rng.randint(-(10**6), 10**6)),),
    }[kind]()
    value = Stripe(*levels[0]) if len(levels) == 1 and rng.random() < 0.3 else sett_of(levels)
    return Expression(value, partial(in_levels, levels), repr(value))


def ranked(means: Meaning, far: int) -> tuple[Integers, Integers]:
    """Return the elements in [-far, far) and their numbers."""
    z = array(range(-far, far))
    keep = means(z)
    elements = z[keep]
    return elements, array(range(-int(keep[:far].sum()), int(keep[far:].sum())))


def filled(outer: Meaning, ink: Meaning, z: Integers) -> Integers:
    """Say which z are elements of `outer` whose numbers are in `ink`."""
    far = max((abs(int(x)) for x in z), default=0) + 1
    if far > FARTHEST:
        raise Unknown
    elements, numbers = ranked(outer, far)
    chosen = set(elements[ink(numbers).astype(bool)].tolist()) if len(elements) else set()
    return np.array([int(x) in chosen for x in z], bool)


def sampled(inner: Meaning, at: Meaning, z: Integers) -> Integers:
    """Say for which numbers z the z-th element of `at` is in `inner`."""
    elements, numbers = ranked(at, FARTHEST)
    place = dict(zip(numbers.tolist(), elements.tolist(), strict=True))
    if not all(int(x) in place for x in z):
        raise Unknown
    return inner(array(place[int(x)] for x in z))


BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Integers, Integers], Integers]]] = {
    "&": (lambda s, t: s & t, lambda a, b: a & b),
    "|": (lambda s, t: s | t, lambda a, b: a | b),
    "-": (lambda s, t: s - t, lambda a, b: a & ~b),
    "^": (lambda s, t: s ^ t, lambda a, b: a ^ b),
}


def as_set(x: Any) -> Any:
    return Sett(x) if isinstance(x, Stripe) else x


def grown(rng: random.Random, depth: int, kinds: Sequence[str], report: Report) -> Expression:
    """Draw an expression; an operation that is refused leaves its first operand."""
    if depth == 0:
        return leaf(rng)
    kind = rng.choice(kinds)
    one = grown(rng, depth - 1, kinds, report)
    if kind in BINARY or kind in ("fill", "sample"):
        made = two_sets(kind, one, grown(rng, rng.randrange(depth), kinds, report))
    else:
        made = one_set(rng, kind, one)
    answered, value = report.ask(made.text, made.value)
    return replace(made, value=value) if answered else one


def two_sets(kind: str, one: Expression, two: Expression) -> Expression:
    """Return an operation on two sets, still to be called."""
    s, t = as_set(one.value), two.value
    if kind in BINARY:
        combine, means = BINARY[kind]
        both = f"({one.text} {kind} {two.text})"
        near = one.near or two.near
        return Expression(lambda: combine(s, t), lambda z: means(one.means(z), two.means(z)), both, near)
    text = f"({one.text}).{kind}({two.text})"
    if kind == "fill":
        return Expression(lambda: s.fill(t), partial(filled, one.means, two.means), text, near=True)
    return Expression(lambda: s.sample(t), partial(sampled, one.means, two.means), text, near=True)


def one_set(rng: random.Random, kind: str, one: Expression) -> Expression:
    """Return an operation on a set, still to be called."""
    s = as_set(one.value)
    near = one.near
    k = rng.choice([rng.randint(-50, 50), *([] if near else [rng.randint(-(10**n), 10**n) for n in (12, 21)])])
    f = rng.choice([1, 2, 3, 7, 10**9])
    if kind == "~":
        return Expression(lambda: ~s, lambda z: ~one.means(z), f"~{one.text}", near)
    if kind == "shift":
        return Expression(lambda: s.shift(k), lambda z: one.means(z - k), f"({one.text}).shift({k})", near)
    if kind == "scale":
        return Expression(lambda: s.scale(f), lambda z: one.means(z // f), f"({one.text}).scale({f})", near)
    return Expression(lambda: s.reverse(k), lambda z: one.means(k - 1 - z), f"({one.text}).reverse({k})", near)


# ------------------------------------------------------------------------------------------------ the fuzz


def known(means: Meaning, z: Integers) -> Integers:
    """Say which integers are in a set; where that is not known they may be."""
    try:
        return means(z)
    except Unknown:
        return np.ones(len(z), bool)


def first_of(keep: Integers, lo: int) -> int | None:
    return lo + int(keep.argmax()) if keep.any() else None


class Case:
    """An expression and another, and what is believed of both in a window."""

    def __init__(self, family: str, number: int, report: Report) -> None:
        rng = random.Random(f"{family} {number}")
        self.name, self.report = f"{family} {number}", report
        self.one = grown(rng, rng.randint(0, 4), KINDS[family], report)
        self.two = grown(rng, rng.randint(0, 2), KINDS[family], report)
        self.s, self.t = as_set(self.one.value), self.two.value
        self.lo, self.hi = self.window(rng)
        z = array(range(self.lo, self.hi))
        self.a, self.b = self.one.means(z), self.two.means(z)
        self.k = rng.choice([0, 1, -1, rng.randint(-100, 100), rng.randint(-(10**15), 10**15)])

    def window(self, rng: random.Random) -> tuple[int, int]:
        """Draw a window of at most some hundred integers: near zero, far away, or where an element is."""
        if self.one.near or self.two.near:
            lo = rng.randint(-200, 100)
            return lo, lo + rng.choice([0, 1, rng.randrange(150)])
        lo = rng.choice([rng.randint(-200, 200), rng.randint(-(10**13), 10**13), rng.randint(-(10**20), 10**20)])
        if rng.random() < 0.5:
            answered, z = self.ask(f"({self.one.text}).find({lo})", lambda: self.s.find(lo))
            lo = z - rng.randint(0, 20) if answered and z is not None else lo
        return lo, lo + rng.choice([0, 1, rng.randrange(300)])

    def ask(self, text: str, question: Callable[[], Any]) -> tuple[bool, Any]:
        return self.report.ask(f"{self.name}: {text}", question)

    def check(self, text: str, question: Callable[[], Any], wanted: object) -> None:
        """Ask a question that has one answer."""
        self.hold(text, question, lambda answer: answer == wanted)

    def hold(self, text: str, question: Callable[[], Any], holds: Callable[[Any], bool]) -> None:
        """Ask a question whose answer has a property."""
        answered, answer = self.ask(text, question)
        if answered:
            self.report.judge(f"{self.name}: {text}", bool(holds(answer)), answer)

    def in_the_window(self) -> None:
        s, t, a, b, lo, hi = self.s, self.t, self.a, self.b, self.lo, self.hi
        inside, at, one, two = (lo, hi), f"in [{lo}, {hi})", self.one.text, self.two.text
        listed = [lo + int(i) for i in np.flatnonzero(a)]
        self.check(f"{one} contains {at}", lambda: [z in s for z in range(lo, hi)], a.tolist())
        self.check(f"count of {one} {at}", lambda: s.count(lo, hi), int(a.sum()))
        self.check(f"elements of {one} {at}", lambda: s.elements(lo, hi).tolist(), listed)
        self.check(f"{one} misses {two} {at}", lambda: s.isdisjoint(t, inside), not (a & b).any())
        self.check(f"{one} <= {two} {at}", lambda: s.issubset(t, inside), not (a & ~b).any())
        self.check(f"{one} same as {two} {at}", lambda: s.same_points(t, inside), bool((a == b).all()))
        self.check(f"count of {one} and {two} {at}", lambda: s.count_common(t, lo, hi), int((a & b).sum()))
        self.check(f"first of {one} and {two} {at}", lambda: s.first_common(t, lo, hi), first_of(a & b, lo))
        for name, make, wanted in (
            ("&", lambda: (s & t).setts(inside), a & b),
            ("union", lambda: s.union(t, inside), a | b),
            ("difference", lambda: s.difference(t, inside), a & ~b),
        ):
            times = wanted.astype(int).tolist()
            self.hold(f"{name} of {one} and {two} {at}", make, lambda u, times=times: self.times(u) == times)

    def times(self, union: DisjointSetts) -> list[int]:
        """Return for each integer of the window how many members of a union hold it."""
        z = array(range(self.lo, self.hi))
        every = [in_levels(tuple((s.on, s.off, s.phase) for s in m.stripes), z).astype(int) for m in union.members]
        return sum(every, np.zeros(len(z), int)).tolist()

    def later(self, keep: Integers, means: Meaning) -> Callable[[int | None], bool]:
        """Say whether an answer is the first in the window, or else behind it and in the set."""
        first, hi = first_of(keep, self.lo), self.hi
        if first is not None:
            return lambda z: z == first
        return lambda z: z is None or (z >= hi and bool(means(array([z]))[0]))

    def on_the_line(self) -> None:
        s, t, a, b, lo = self.s, self.t, self.a, self.b, self.lo
        one, two = self.one.text, self.two.text
        in_one, in_two = partial(known, self.one.means), partial(known, self.two.means)
        in_both = lambda z: in_one(z) & in_two(z)  # noqa: E731
        self.hold(f"find in {one} from {lo}", lambda: s.find(lo), self.later(a, in_one))
        self.hold(f"first of {one} and {two} from {lo}", lambda: s.first_common(t, lo), self.later(a & b, in_both))
        self.hold(f"{one} is empty", lambda: s.is_empty, lambda empty: not (empty and a.any()))
        self.hold(f"{one} misses {two}", lambda: s.isdisjoint(t), lambda no: not (no and (a & b).any()))
        self.hold(f"{one} <= {two}", lambda: s <= t, lambda yes: not (yes and (a & ~b).any()))
        self.hold(f"{one} same as {two}", lambda: s.same_points(t), lambda yes: not (yes and (a != b).any()))
        self.hold(f"count of {one}", s.count, lambda n: n > 0 if a.any() else n >= 0)
        self.hold(f"common count of {one} and {two}", lambda: s.count_common(t), lambda n: n > 0 or not (a & b).any())
        self.hold(f"period of {one}", lambda: s.period, self.repeats)
        answered, empty = self.ask(f"{one} is empty", lambda: s.is_empty)
        if answered and not empty:
            self.hold(f"({one}).nth({self.k})", lambda: s.nth(self.k), lambda x: bool(in_one(array([x]))[0]))

    def repeats(self, period: int) -> bool:
        with suppress(Unknown):
            return bool((self.one.means(array(range(self.lo, self.hi)) + period) == self.a).all())
        return True


@pytest.fixture(scope="module", params=KINDS)
def report(request: pytest.FixtureRequest) -> Report:
    """Ask about all expressions of a family."""
    found = Report()
    for number in range(EXPRESSIONS if request.config.getoption("--all") else DEFAULT_EXPRESSIONS):
        try:
            case = Case(request.param, number, found)
            case.in_the_window()
            case.on_the_line()
        except Unknown:
            found.unknown += 1
    for seconds, text in found.slowest:
        print(f"{seconds:.3f} s  {text}")
    print(f"{found.asked} asked, {found.refused} refused, {found.unknown} expressions not known so far from zero")
    return found


def test_no_answer_about_random_expressions_is_wrong(report: Report) -> None:
    assert not report.wrong, f"{len(report.wrong)} of {report.asked}: {report.wrong[:5]}"


def test_no_question_about_random_expressions_takes_long(report: Report) -> None:
    assert not report.slow, f"{len(report.slow)} of {report.asked}: {report.slow[:5]}"


def test_no_question_about_random_expressions_fails(report: Report) -> None:
    assert not report.crashed, f"{len(report.crashed)} of {report.asked}: {report.crashed[:5]}"


ONCE_WRONG = {"numbered": (17, 86, 2795, 3624, 4365, 4825, 4886), "plain": (978, 1820, 2131)}
"""Expressions with questions that failed once, or took up to 16 s."""


@pytest.mark.parametrize(("family", "number"), [(kind, k) for kind, numbers in ONCE_WRONG.items() for k in numbers])
def test_expressions_that_died_or_took_long_once(family: str, number: int) -> None:
    found = Report()
    case = Case(family, number, found)
    case.in_the_window()
    case.on_the_line()
    assert found.asked > 20 and not found.crashed and not found.wrong and not found.slow


def residues(points: Sequence[int], n: int) -> list[int]:
    return [sum(z % n == r for z in points) for r in range(n)]


def far_count() -> int:
    """Count what 0, 2, ..., 10 modulo 18 and 2⁶³ twelves of 0, 1, 2 modulo 4 share in one common period.

    The periods are 18 and 12·2⁶³ + 6, whose gcd is 6: each pair of elements that agree modulo 6 is one of both.
    """
    ours = residues(range(0, 11, 2), 6)
    theirs = residues([z + 5 for z in range(12) if z % 4 < 3], 6)
    return 2**63 * sum(m * n for m, n in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("period", [2**64, 10**23])
def test_elements_of_an_intersection_with_a_set_that_is_empty_there(period: int) -> None:
    both = Sett(Stripe(1, 22)) & Sett(Stripe(period, period))
    assert both.elements(3, 5).tolist() == []
    assert both.elements(-2 * period, -2 * period).tolist() == []


def test_count_of_a_common_period_with_more_than_int64_turns() -> None:
    evens, far = Sett(Stripe(11, 7), Stripe(1, 1)), Sett(Stripe(3 * 2**65, 6, 5), Stripe(3, 1))
    assert evens.count_common(far) == far_count()


KNOWN_SLOW: dict[str, Callable[[], Any]] = {
    "nth of an intersection": lambda: (
        Stripe(1, 10006, phase=1866)
        & Sett(Stripe(249127755355057, 348464176339128, phase=455138079836951), Stripe(13, 25))
    ).nth(-221704868883646),
    "difference of 32,167 pieces": lambda: (
        Sett(Stripe(15797, 3744, phase=5218)) - Sett(Stripe(1583304841, 4, phase=545021761), Stripe(1, 38))
    ),
    "complement of a union": lambda: (
        ~(
            Sett(Stripe(9, 6, phase=12), Stripe(1, 7))
            ^ Sett(Stripe(49318320, 49318387, phase=9092278), Stripe(24659147, 24659206, phase=36465571), Stripe(1, 33))
        )
    ),
}


@pytest.mark.parametrize("name", KNOWN_SLOW)
def test_slow_questions_answer_or_are_refused_in_time(name: str) -> None:
    found = Report()
    found.ask(name, KNOWN_SLOW[name], pieces=10_000)
    assert not found.slow


def test_few_questions_about_random_expressions_are_refused(report: Report) -> None:
    assert report.asked > 10 * DEFAULT_EXPRESSIONS  # most of what is drawn is asked about
    assert report.refused < report.asked / 20
    assert report.unknown < report.asked / 50


@pytest.mark.heavy(2)
def test_a_question_that_hangs_is_interrupted() -> None:
    def hang() -> None:
        while True:
            pass

    found = Report()
    assert found.ask("an endless loop", hang) == (False, None)
    assert found.slow == ["an endless loop"]


def test_what_is_wrong_or_fails_is_reported() -> None:
    found = Report()
    case = Case("plain", 0, found)
    case.check("two", lambda: 2, 3)
    case.check("nothing", lambda: 1 // 0, 3)
    assert found.wrong == ["plain 0: two: 2"]
    assert len(found.crashed) == 1
    assert "ZeroDivisionError" in found.crashed[0]
