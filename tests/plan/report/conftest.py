"""A browser for all pages of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.pages import start_chromium


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    with start_chromium() as found:
        yield found
