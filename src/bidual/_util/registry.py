"""Classes by the names that files use for them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

T = TypeVar("T")


class UnknownNameError(ValueError):
    """A file names a class that does not exist (yet)."""


class Registry(dict[str, type[T]]):
    """The subclasses of a base class by name, whoever defined them: a file that names one finds it once it exists.

    Parameters
    ----------
    what : str
        What they are, in messages.
    """

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def add(self, name: str, cls: type[T]) -> None:
        """Register a class; another one of that name is replaced (a notebook defines its own again and again).

        Raises
        ------
        TypeError
            If the name belongs to a class of this library, whose files would then mean something else.
        """
        there = self.get(name)
        ours = there is not None and there.__module__.split(".")[0] == "bidual"
        if there is not None and ours and cls.__module__ != there.__module__:
            raise TypeError(f"the {self.what} {name!r} is {there.__name__} of bidual: give {cls.__name__} another name")
        self[name] = cls

    def find(self, name: Any) -> type[T]:
        """The class of that name.

        Raises
        ------
        UnknownNameError
            If there is none (yet).
        """
        if not isinstance(name, str) or name not in self:
            raise UnknownNameError(
                f"the {self.what} {name!r} is not known here: import the module that defines it before loading "
                f"(known are {', '.join(map(repr, sorted(self)))})"
            )
        return self[name]

    def named(self, cls: type[T], name: str) -> str:
        """``name``, if that is where a file will find ``cls`` again; ValueError if not."""
        if self.get(name) is not cls:
            raise ValueError(f"the {self.what} {cls.__name__} cannot be saved: give the class a name of its own")
        return name


class ByKind(Generic[T]):
    """Something for each kind of object, found by the class of the object or the nearest of its bases."""

    def __init__(self) -> None:
        self._known: dict[type, T] = {}

    def add(self, kind: type, value: T) -> None:
        """What stands for objects of that kind."""
        self._known[kind] = value

    def of(self, instance: object) -> T:
        """What stands for this object."""
        return next(self._known[kind] for kind in type(instance).__mro__ if kind in self._known)
