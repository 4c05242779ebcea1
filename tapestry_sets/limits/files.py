"""Files that appear only when they are whole, at paths that can be written to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from tapestry_sets.limits.printable import cut_text, quote

if TYPE_CHECKING:
    from pathlib import Path


def check_target(path: str | os.PathLike[str], what: str) -> Path:
    """Where a file is to be written, links resolved.

    Raises
    ------
    ValueError
        When its folder does not exist or cannot be written to, or something that is not a file is there already.
    """
    from pathlib import Path  # it loads half of urllib, which importing this package should not wait for

    try:
        target = Path(path).resolve()
        if target.is_symlink():  # links in a circle; from Python 3.13 on, resolve leaves them as they are
            raise OSError("links lead in a circle")
        folder, there, plain = target.parent.is_dir(), target.exists(), target.is_file()
    except (ValueError, OSError, RuntimeError) as error:  # a zero character, a name too long, a loop of links
        raise ValueError(
            f"{what}: {quote(str(path))} is not a path that can be written: {cut_text(str(error))}"
        ) from None
    if not folder:
        raise ValueError(f"{what}: the folder of {quote(str(path))} does not exist; make it first")
    if there and not plain:
        kind = "a folder" if target.is_dir() else "not an ordinary file"
        raise ValueError(f"{what}: {quote(str(path))} is {kind}; give the name of a file")
    try:  # a file beside it, as `replace_file` makes one: rights alone do not say whether the folder takes it
        beside = _name_beside(target)
        beside.touch(exist_ok=False)
        beside.unlink()
    except OSError as error:
        told = f"{what}: the folder of {quote(str(path))} cannot be written to ({error.strerror}); choose another one"
        raise ValueError(told) from None
    return target


def _name_beside(target: Path) -> Path:
    return target.with_name(f".{os.urandom(8).hex()}.part")


@contextmanager
def replace_file(target: Path) -> Iterator[IO[bytes]]:
    """A file that takes the target's place once it is whole: written beside it, then renamed.

    An error of the system, as of a disk that is full, names the target; nothing is left there then.
    """
    beside = _name_beside(target)
    try:
        with open(beside, "xb") as file:
            yield file
        os.replace(beside, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(target)) from error
    finally:
        beside.unlink(missing_ok=True)
