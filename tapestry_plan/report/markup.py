"""Elements of HTML: words are escaped here, once, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tapestry_sets.limits import Units

UNITS = Units()
OWN_KEYS = {"data_lm_suppress_shortcuts": "true"}
"""Of an element that has the focus: JupyterLab leaves it its keys."""


def escape(words: object) -> str:
    """Words as text of an element or value of an attribute; what is not printed becomes a question mark.

    Examples
    --------
    >>> escape('</script> & "quotes"')
    '&lt;/script&gt; &amp; &quot;quotes&quot;'
    >>> escape("a\\x00b\\x1b[2J")
    'a?b?[2J'
    """
    from html import escape as escape_html  # loaded with the first report, not with the package

    return escape_html(re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "?", str(words)))


def element(tag: str, *inside: str, **attributes: object) -> str:
    """An element around markup; an attribute's underscore is a hyphen, a last one is dropped, None leaves it out.

    Examples
    --------
    >>> element("td", escape("a < b"), class_="tp-number", data_nbytes=12, hidden=None)
    '<td class="tp-number" data-nbytes="12">a &lt; b</td>'
    """
    given = (
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{''.join(given)}>{''.join(inside)}</{tag}>"


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = (), *, cards: bool = False
) -> str:
    """A table of text, in which numbers end in line; with `cards` its rows are cards on narrow pages."""

    def cell(k: int, words: str) -> str:
        return element("td", escape(words), class_="tp-number" if k in numbers else None, data_head=heads[k])

    head = "".join(element("th", escape(h), class_="tp-number" if k in numbers else None) for k, h in enumerate(heads))
    body = "".join(f"<tr>{''.join(cell(k, words) for k, words in enumerate(row))}</tr>" for row in rows)
    kind = "tp-table tp-cards" if cards else "tp-table"
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def panel(name: str, title: str, *inside: str) -> str:
    """A panel of a report under its title."""
    return element("section", element("h2", escape(title)), *inside, class_="tp-panel", id=name, data_panel=name)


def tell_nbytes(nbytes: int) -> str:
    """Bytes rounded, with the exact number beside where that says more.

    Examples
    --------
    >>> tell_nbytes(512), tell_nbytes(1536), tell_nbytes(4764384)
    ('512 B', '1.5 KiB (1,536 B)', '4.544 MiB (4,764,384 B)')
    """
    short, exact = UNITS.nbytes(nbytes), f"{nbytes:,} B"
    return exact if short.endswith(" B") else f"{short} ({exact})"
