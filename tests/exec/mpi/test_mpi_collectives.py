"""Calls of MPI between ranks that one process plays: no order that programs allow waits for ever, or mixes calls up."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_exec.mpi import collectives
from tapestry_exec.mpi.collectives import Calls, list_calls
from tapestry_exec.run import Parcel, PreparedPlan
from tapestry_plan.steps import Buffer, DeviceStep, GroupedStep, Recv, Send, lower, order_hoisted, split_steps
from tapestry_plan.steps.collectives import group_steps
from tests.exec.run.test_side_by_side import made
from tests.exec.small_networks import exchange_rows
from tests.plan.steps.test_programs import Case, cases

MPI = SimpleNamespace(IN_PLACE="in place", BYTE="byte")
Programs = list[list[DeviceStep]]


class Pretended:
    """What MPI does, at its strictest: a call is over when all ranks have begun it, and each has begun the same one."""

    def __init__(self) -> None:
        self.begun: dict[Any, list[dict[int, Any]]] = defaultdict(list)
        """By group, its calls: what each rank gave."""
        self.counts: Counter[tuple[Any, int]] = Counter()
        self.ways: Counter[str] = Counter()

    def begin(self, group: tuple[int, ...], rank: int, *call: Any) -> Any:
        k = self.counts[group, rank]
        self.counts[group, rank] += 1
        if k == len(self.begun[group]):
            self.begun[group].append({})
        here = self.begun[group][k]
        here[rank] = call
        assert len({way for way, *_ in here.values()}) == 1, "ranks began different calls"
        if len(here) == len(group):
            self.ways[call[0]] += 1
            getattr(self, call[0])([here[member][1:] for member in group])
        return SimpleNamespace(Test=lambda: len(here) == len(group))

    def Iallgather(self, given: Any) -> None:
        for k, (source,) in enumerate(given):
            for (target,) in given:
                assert len(source) == len(target) and len(target) % len(given) == 0
                block = slice(k * len(target) // len(given), (k + 1) * len(target) // len(given))
                target[block] = source[block]

    def Ibcast(self, given: Any) -> None:
        ((root,),) = {(root,) for _, root in given}
        for target, _ in given:
            assert len(target) == len(given[root][0])
            target[:] = given[root][0]

    def Ialltoallv(self, given: Any) -> None:
        for a, (source, (counts, places), *_) in enumerate(given):
            for b, (*_, target, (gets, there)) in enumerate(given):
                assert counts[b] == gets[a]
                target[there[a] : there[a] + gets[a]] = source[places[b] : places[b] + counts[b]]


class Ranks:
    """A communicator, as one rank has it.

    Parameters
    ----------
    world : Pretended
    group : tuple of int
    rank : int
        Its number in the world.
    """

    def __init__(self, world: Pretended, group: tuple[int, ...], rank: int) -> None:
        self.world, self.group, self.rank, self.freed = world, group, rank, False

    def Get_group(self) -> Any:
        def include(members: tuple[int, ...]) -> Any:
            return SimpleNamespace(members=members, Free=lambda: None)

        return SimpleNamespace(Incl=include, Free=lambda: None)

    def Create_group(self, group: Any) -> Ranks:
        assert self.rank in group.members
        return Ranks(self.world, group.members, self.rank)

    def Free(self) -> None:
        self.freed = True

    def Iallgather(self, given: str, room: Any) -> Any:
        assert given == MPI.IN_PLACE and room[1] == MPI.BYTE
        return self.world.begin(self.group, self.rank, "Iallgather", room[0])

    def Ibcast(self, room: Any, root: int) -> Any:
        return self.world.begin(self.group, self.rank, "Ibcast", room[0], root)

    def Ialltoallv(self, given: Any, came: Any) -> Any:
        return self.world.begin(self.group, self.rank, "Ialltoallv", *given[:2], *came[:2])


def cut_up(graph: Any, written: Any, size: int) -> Programs:
    """The devices' programs, whose sends stand right behind what wrote their cells."""
    mine: Programs = [[] for _ in range(size)]
    for at in split_steps(graph, written):
        mine[at.device].append(at)
    return [[each[k] for k in order_hoisted([at.step for at in each])] for each in mine]


def play(
    grouped: list[GroupedStep],
    programs: Programs,
    buffers: dict[int, Buffer],
    rng: Random,
    cut: int = 0,
    stop: int | None = None,
) -> tuple[Pretended, list[Calls]]:
    """Run what programs exchange, from a cut on, in any order, up to a number of steps."""
    world, made = Pretended(), list_calls(grouped, programs)
    ranks = [Calls(MPI, Ranks(world, (), rank), made, Counter()) for rank in range(len(programs))]
    left = [[at for at in each if at.number >= cut and isinstance(at.step, Send | Recv)][::-1] for each in programs]
    mail: dict[tuple[int, int, int], Any] = {}
    sent: dict[tuple[int, int, int], Any] = {}

    def do(device: int) -> bool:
        step = left[device][-1].step
        if isinstance(step, Send):
            size = sum(region.size for region in step.regions)
            seed = crc32(repr((device, step.src, step.regions)).encode())  # the same cells are the same bytes
            cells = np.random.default_rng(seed).integers(0, 100, size).astype(buffers[step.src].dtype)
            key = device, step.peer, step.tag
            parcel = sent[key] = Parcel(cells, float(step.tag), float(step.peer))
            if ranks[device].lay_by(step.tag, step.peer, parcel, 1.0) is None:
                mail[key] = parcel
        else:
            assert isinstance(step, Recv)
            key = step.peer, device, step.tag
            share = ranks[device].find(step.tag, step.peer)
            if share is None and key not in mail:
                return False
            if share is not None and not share.request.Test():
                return False
            found = mail.pop(key) if share is None else share.read(step.peer, buffers[step.dst].dtype, 1.0)
            assert found.cells.tobytes() == sent[key].cells.tobytes()
            assert found[1:] == sent[key][1:], "with the times of this very parcel"
        left[device].pop()
        return True

    for one in ranks:
        one.begin_run(cut)
    done = 0
    while done != stop and any(left):
        ready = [device for device, steps in enumerate(left) if steps]
        rng.shuffle(ready)
        assert any(map(do, ready)), "they wait for each other"
        done += 1
    if stop is None:
        assert not mail and all(
            share.left == 0 for one in ranks for line in one.lines.values() for share in line.shares
        )
    return world, ranks


@settings(max_examples=max(15, settings.default.max_examples // 6))
@given(cases(), st.integers(0, 10**6), st.data())
def test_no_order_that_programs_allow_waits_for_ever(case: Case, seed: int, data: st.DataObject) -> None:
    """From any cut on; where ranks stop anywhere, those that are behind begin what others have begun."""
    graph, mesh, _ = case
    whole, rng = lower(*case), Random(seed)
    programs = cut_up(graph, whole, mesh.size)
    grouped, buffers = list(group_steps(whole.steps, whole.buffers, mesh)), {b.id: b for b in whole.buffers}
    play(grouped, programs, buffers, rng)
    play(grouped, programs, buffers, rng, cut=data.draw(st.integers(0, len(whole.steps))))
    _, ranks = play(grouped, programs, buffers, rng, stop=data.draw(st.integers(0, 40)))
    begun = [one.count_begun() for one in ranks]
    every = [share for one in ranks for share in one.catch_up(begun)]
    assert all(share.request.Test() for share in every)


def play_plan(p: Any, **more: Any) -> Pretended:
    prepared = PreparedPlan(p)
    return play(list(p.grouped_steps), list(map(list, prepared.programs)), dict(prepared.work.buffers), **more)[0]


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_collectives_are_the_calls_that_fit(devices: int) -> None:
    """Also when a run goes on from a cut within one, whose parts are messages then."""
    p, _ = exchange_rows(devices, 3)
    gathers, deals = (5, 0) if devices == 2 else (3, 2)  # of two, each sends the same to all others
    assert play_plan(p, rng=Random(0)).ways == Counter(Iallgather=gathers, Ialltoallv=deals)
    within = list_calls(p.grouped_steps, PreparedPlan(p).programs)[2].last
    assert play_plan(p, rng=Random(1), cut=within).ways == Counter(
        Iallgather=gathers - 2 - (devices == 2), Ialltoallv=max(0, deals - 1)
    )
    sums = [one for one in made(devices)[0].collectives() if one.kind == "reduce_scatter"]
    ways = play_plan(made(devices)[0], rng=Random(2)).ways
    assert ways["Ialltoallv"] >= len(sums) > 0, "parts are merged by the plan's own steps"


def test_what_a_device_packs_too_late_is_no_call() -> None:
    """By hand: a device that receives before it sends, or that sends for one when it waits for the next."""
    p, _ = exchange_rows(2, 3)
    programs = [list(program) for program in PreparedPlan(p).programs]
    calls = list_calls(p.grouped_steps, programs)
    assert [call.kind for call in calls] == ["all_gather"] * 5
    for k, behind in ((0, 0), (0, 1), (2, 2), (3, 4)):
        mine = list(programs[1])
        send = next(at for at in mine if isinstance(at.step, Send) and at.step.tag == calls[k].tags[1, 0])
        mine.remove(send)
        place = next(
            n
            for n, at in enumerate(mine)
            if isinstance(at.step, Recv) and at.number in range(calls[behind].first, calls[behind].last + 1)
        )
        mine.insert(place + 1, send)
        kept = list_calls(p.grouped_steps, [programs[0], mine])
        assert kept == [call for n, call in enumerate(calls) if n != k]
    fewer = [at for at in programs[0] if at.number != calls[1].first], programs[1]
    assert list_calls(p.grouped_steps, fewer) == [calls[0], *calls[2:]], "what is not done in whole"
    with mock.patch.object(collectives, "MAX_COMMUNICATORS", 0):
        assert not list_calls(p.grouped_steps, programs)
