"""The one kind of data class that crosses a boundary in this project: frozen and slotted.

Snapshots travel between threads, so nobody may change one after it was made; slots keep a week
of them small.  ``dataclass(slots=True)`` exists since Python 3.10, this package supports 3.9.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda f: f


_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[_T]) -> type[_T]:
    """Make `cls` a frozen data class, with slots where the interpreter can."""
    if sys.version_info >= (3, 10):
        return dataclasses.dataclass(frozen=True, slots=True)(cls)
    return dataclasses.dataclass(frozen=True)(cls)
