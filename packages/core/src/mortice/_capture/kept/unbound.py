"""Functions of core's that a module of the framework has not bound yet.

``mortice`` imports whole families of operators when one of them is asked for, which takes 0.3 ms. A plan
that was found does not call its function, so that the first call needs none of them: it is enough to know
which function a name will be.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any, NamedTuple
from weakref import ref

from mortice import _generated
from mortice._capture.kept.files import Unnamed
from mortice._capture.kept.naming import Description, describe


class Unbound(NamedTuple):
    """A name of a module, and the function that it will be."""

    module: str
    name: str
    function: Description

    def bind(self) -> ref[Any]:
        """The function; where it is another one after all, what no object is."""
        getattr(
            sys.modules["mortice"], self.name, None
        )  # it knows where; others ask for all its names
        found = getattr(sys.modules[self.module], self.name, None)
        try:
            if describe(found) == self.function:
                return ref(found)
        except Unnamed:
            pass
        return ref(set[Any]())


def will_be(module: str, name: Any, function: Description) -> bool:
    """Whether a name that a module of the framework lacks will be a function of core's.

    It is if ``mortice`` has to import that function as well, so that nobody has put another in its place,
    and the module itself gives what it lacks.
    """
    if function[0] != "function" or function[2] != name or name in vars(sys.modules["mortice"]):
        return False
    home = function[1]
    if home in sys.modules or home != f"mortice._generated.{_generated.LATER.get(name)}":
        return False
    names = vars(sys.modules[module])
    ask = names.get("__getattr__")
    return type(ask) is FunctionType and ask.__globals__ is names
