"""Explorers of plans and of overlaps: sliders in a notebook, whose answers Python makes anew.

They are widgets of anywidget, which JupyterLab, VS Code and marimo show. This module is loaded when one is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import Graph
from tapestry_plan.report.markup import UNITS, element, escape, tell_nbytes
from tapestry_plan.report.page import arrange, describe_plan, panels_of, read_asset, read_layouter, style_of
from tapestry_plan.report.tuning import KEPT_PLANS, LINK_FACTORS, MAX_STARTS, MEMORY_SHARES, OFFERED_MESHES, STEPS
from tapestry_plan.search import plan_or_spill
from tapestry_plan.steps import Link, Mesh, ShardPlan, tell_gap
from tapestry_sets.alias import overlap, show_views
from tapestry_sets.draw import canvas
from tapestry_sets.limits import check_arguments, cut_text
from tapestry_sets.views import View

try:
    import anywidget
    import traitlets
except ImportError:
    raise ImportError(
        "explorers are widgets of anywidget, which is not installed; pip install 'tapestry-tensor[widgets]', and ask "
        "again"
    ) from None


class Control(Struct, frozen=True):
    """A slider over a list of choices.

    Parameters
    ----------
    name, label : str
        What Python and what readers call it.
    words : tuple of str
        A word for each choice.
    place : int
        The one that is chosen.
    """

    name: str
    label: str
    words: tuple[str, ...]
    place: int

    def to_dict(self) -> dict[str, Any]:
        """As the page reads it."""
        return {"name": self.name, "label": self.label, "words": list(self.words), "place": self.place}


class Explorer(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget has no types here
    """Sliders, a line about the answer, and the answer as markup; those below say what is asked."""

    controls = traitlets.List().tag(sync=True)
    places = traitlets.Dict().tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)
    answer = traitlets.Dict().tag(sync=True)
    layouter = traitlets.Bytes().tag(sync=True)
    _esm = "\n".join(map(read_asset, ("explore.js", "widgets.js")))
    _css = style_of(is_page=False)

    def __init__(self) -> None:
        super().__init__()
        self._update()
        self.observe(self._update, names="places")

    def _update(self, change: object = None) -> None:
        """Ask anew, and show the sliders as they are then."""
        said, html, data = self.ask()
        controls = self.list_controls()
        self.controls = [one.to_dict() for one in controls]
        self.said, self.answer = said, {"html": html, "data": data}

    def _find_place(self, name: str, count: int, first: int) -> int:
        """Which of so many choices a slider is at: the first one until somebody moves it."""
        asked = self.places.get(name, first)
        return min(max(0, asked), count - 1) if isinstance(asked, int) else first

    def list_controls(self) -> Sequence[Control]:
        """The sliders as they are."""
        raise NotImplementedError(f"{type(self).__name__}: an explorer has sliders; define `list_controls`")

    def ask(self) -> tuple[str, str, dict[str, Any] | None]:
        """A line, markup, and what the script needs, for the choices of the sliders."""
        raise NotImplementedError(f"{type(self).__name__}: an explorer answers to its sliders; define `ask`")


class PlanExplorer(Explorer):
    """A plan in a notebook, with sliders for the mesh, the links and the memory; each move makes the plan anew.

    Parameters
    ----------
    source : Graph or ShardPlan
        What is planned; of a plan its graph as it has it, with its mesh, its space, and the memory within which its
        arenas were laid out anew or spill.
    mesh : Mesh, optional
        Where the sliders begin; of a plan its own. Where its devices differ, or its axes have links of their own, it is
        the only one.
    **options
        As `plan` takes them.

    Raises
    ------
    ImportError
        Without anywidget.
    TypeError, ValueError
        As `plan` does.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, PlanExplorer
    >>> g = Graph()
    >>> _ = g.output(g.input("x", (64, 64)) @ g.input("w", (64, 64)))
    >>> explorer = PlanExplorer(g, Mesh(2))
    >>> explorer.places = {"mesh": 2}
    >>> explorer.plan.mesh.shape
    (3,)
    """

    @check_arguments(source="give a Graph, or a ShardPlan")
    def __init__(self, source: Graph | ShardPlan, mesh: Mesh | None = None, **options: Any) -> None:
        self._graph = source.graph if isinstance(source, ShardPlan) else source
        base = mesh or (source.mesh if isinstance(source, ShardPlan) else Mesh((4,)))
        if isinstance(source, ShardPlan):
            base, capped = _keep_caps(source, base)
            options = {"space": source.space, **capped, **options}
        self._base, self._options = base, options
        is_plain = isinstance(base.link, Link) and not base.differs
        shapes = [base.shape, *(shape for shape in OFFERED_MESHES if shape != base.shape)] if is_plain else [base.shape]
        self._shapes = sorted(shapes, key=lambda shape: (Mesh(shape).size, len(shape)))
        self._plans: dict[tuple[int, int, int], ShardPlan] = {}
        self._shown: ShardPlan | None = None
        super().__init__()
        self.layouter = read_layouter()

    def __repr__(self) -> str:
        return f"PlanExplorer({self.plan!r})"

    @property
    def plan(self) -> ShardPlan:
        """The plan that is shown."""
        assert self._shown is not None, "the first plan is made with the explorer"
        return self._shown

    def _find_mesh(self) -> Mesh:
        shape = self._shapes[self._where()[0]]
        factor = LINK_FACTORS[self._where()[1]]
        names = self._base.names if shape == self._base.shape else ()
        return replace(self._base, shape=shape, names=names, link=_scale_links(self._base.link, factor))

    def _where(self) -> tuple[int, int, int]:
        """The places of the sliders of mesh, link and memory."""
        return (
            self._find_place("mesh", len(self._shapes), self._shapes.index(self._base.shape)),
            self._find_place("link", len(LINK_FACTORS), LINK_FACTORS.index(1.0)),
            self._find_place("memory", len(MEMORY_SHARES), 0),
        )

    def _find_plan(self, at: tuple[int, int, int]) -> ShardPlan:
        """The plan for some places, made once; memory is a share of what the fastest plan takes there."""
        if at not in self._plans:
            mesh, share, options = self._find_mesh(), MEMORY_SHARES[at[2]], dict(self._options)
            if share < 1:
                free = self._find_plan((at[0], at[1], 0))
                options["memory_nbytes"] = int(max(free.peak_nbytes) * share)
            if len(self._plans) >= KEPT_PLANS:
                self._plans.pop(next(iter(self._plans)))
            self._plans[at] = plan_or_spill(self._graph, mesh, **options)
        return self._plans[at]

    def list_controls(self) -> Sequence[Control]:
        """Mesh, links and memory."""
        at = self._where()
        free = self._plans.get((at[0], at[1], 0))
        meshes = tuple("×".join(map(str, shape)) for shape in self._shapes)
        rates = tuple(
            f"{link.nbytes_per_second / 1e9:,.4g} GB/s"
            for factor in LINK_FACTORS
            for link in [Mesh(self._base.shape, link=_scale_links(self._base.link, factor)).ports[0]]
        )
        limits = self._base.limit_memory(self._options.get("memory_nbytes"))
        most = "no limit" if limits is None else _tell_limits(limits)
        caps = tuple(most if share == 1 else _tell_cap(free, share) for share in MEMORY_SHARES)
        return (
            Control("mesh", "devices", meshes, at[0]),
            Control("link", "each link", rates, at[1]),
            Control("memory", "memory", caps, at[2]),
        )

    def ask(self) -> tuple[str, str, dict[str, Any] | None]:
        """The plan for these choices; where there is none, the line says why and the last one stays."""
        begin = time.perf_counter()
        try:
            made = self._find_plan(self._where())
            taken = time.perf_counter() - begin
            html, (data, _) = arrange(panels_of(made)), describe_plan(made)
        except ValueError as error:
            if self._shown is None:
                raise
            return f"No such plan: {error}", self.answer.get("html", ""), self.answer.get("data")
        self._shown = made
        said = (
            f"{UNITS.seconds(made.seconds)} modeled, {tell_gap(made)}; {tell_nbytes(made.nbytes_moved)} move, "
            f"at most {tell_nbytes(max(made.peak_nbytes))} on a device; planned in {UNITS.seconds(taken)}"
        )
        return said, html, data


def _keep_caps(source: ShardPlan, mesh: Mesh) -> tuple[Mesh, dict[str, int]]:
    """The caps of a plan: as an option where they are one number, else in the devices of its own mesh."""
    caps = source.choices.caps
    if caps is None:
        return mesh, {}
    if len(set(caps)) == 1 or mesh != source.mesh:
        return mesh, {"memory_nbytes": max(caps)}
    devices = [replace(one, memory_nbytes=cap) for one, cap in zip(mesh.devices, caps, strict=True)]
    return replace(mesh, device=tuple(devices)), {}


def _tell_limits(caps: Sequence[int]) -> str:
    return f"{' or '.join(map(UNITS.nbytes, sorted(set(caps))))} a device"


def _tell_cap(free: ShardPlan | None, share: float) -> str:
    """A share of what the plan takes that has no limit, where that is known."""
    return (
        f"{share:.0%} of the most" if free is None else f"{UNITS.nbytes(int(max(free.peak_nbytes) * share))} a device"
    )


def _scale_links(link: Link | tuple[Link | str, ...], factor: float) -> Link | tuple[Link | str, ...]:
    if isinstance(link, tuple):
        return tuple(one if isinstance(one, str) else _scale_link(one, factor) for one in link)
    return _scale_link(link, factor)


def _scale_link(link: Link, factor: float) -> Link:
    return replace(link, nbytes_per_second=link.nbytes_per_second * factor)


class OverlapExplorer(Explorer):
    """Two views in a notebook, with sliders for where each begins and how far apart its cells are, axis by axis.

    Parameters
    ----------
    a, b : View
        Of any allocations. With the sliders at their ends ``b[start::step]`` is asked of instead of ``b``, and so of
        ``a``.

    Raises
    ------
    ImportError
        Without anywidget.

    Examples
    --------
    >>> from tapestry_plan import OverlapExplorer
    >>> from tapestry_sets import allocate
    >>> A = allocate((27,), name="A")
    >>> explorer = OverlapExplorer(A[::2], A[1::2])
    >>> explorer.said
    'Overlap(no cell: a = A[::2], b = A[1::2])'
    >>> explorer.places = {"b 0 step": 2}
    >>> explorer.found
    Overlap(no cell: a = A[::2], b = A[1::2][::3])
    """

    @check_arguments(a="give a view, as A[2::5] of an allocation", b="give a view, as A[2::5] of an allocation")
    def __init__(self, a: View, b: View) -> None:
        self._given = {"a": a, "b": b}
        super().__init__()

    def __repr__(self) -> str:
        return f"OverlapExplorer({cut_text(self.said, 180)})"

    @property
    def views(self) -> tuple[View, View]:
        """The views as the sliders cut them."""
        first, second = (self._cut(name) for name in self._given)
        return first, second

    @property
    def found(self) -> Any:
        """The overlap of the two."""
        return overlap(*self.views)

    def _cut(self, name: str) -> View:
        view, slices = self._given[name], []
        for axis, extent in enumerate(view.shape):
            start = self._find_place(f"{name} {axis} start", max(1, extent), 0)
            step = self._find_place(f"{name} {axis} step", len(STEPS), 0)
            slices.append(slice(start or None, None, STEPS[step] if step else None))
        return view[tuple(slices)]

    def list_controls(self) -> Sequence[Control]:
        """For each axis of both views where it begins, and the step between its cells."""
        found = []
        for name, view in self._given.items():
            for axis, extent in enumerate(view.shape):
                starts = tuple(f"{k}:" for k in range(max(1, min(extent, MAX_STARTS))))
                steps = tuple(f"::{step}" for step in STEPS)
                for what, words in (("start", starts), ("step", steps)):
                    key = f"{name} {axis} {what}"
                    found.append(
                        Control(key, f"{name}, axis {axis}: {what}", words, self._find_place(key, len(words), 0))
                    )
        return found

    def ask(self) -> tuple[str, str, dict[str, Any] | None]:
        """The overlap, and a picture of where the cells lie."""
        a, b = self.views
        said = repr(overlap(a, b))
        try:
            picture = show_views(a, b, names=["a", "b"]).to_html()
        except canvas.NOT_DRAWN as error:
            picture = element("p", escape(f"There is no picture: {error}"), class_="tp-note")
        return said, picture, None
