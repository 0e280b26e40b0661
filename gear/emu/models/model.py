"""Which function says what an operation takes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable

from gear.emu.models.curve import Curve
from gear.emu.models.curve_file import read_curves
from gear.emu.models.links import Links
from gear.emu.models.shape import Shape
from gear.emu.models.two_level import two_level
from gear.errors import InvalidArgument

Model = Callable[[str, Shape, Links], Curve]
"""(operation, shape of the group, links) -> its curve: asked once a group and operation."""


def model(source: str | os.PathLike[str] | Model = "two_level") -> Model:
    """A model by its name.

    Args:
        source: ``"two_level"``, which is built in; ``"none"``, by which nothing takes longer than
            it does here, for jobs whose ranks are all real; ``"package.module:function"``; the path
            of a file of curves (``.csv``, see `read_curves`), which answers for the operations and
            shapes that it has; or a function, which is returned as it is.

    Raises:
        InvalidArgument: for a name that is none of these, and a function that is not there.
        CorruptData, IoError: as `read_curves`.
    """
    if callable(source):
        return source
    name = os.fspath(source)
    if name == "two_level":
        return two_level
    if name == "none":
        return _none
    if name.endswith(".csv"):
        return _of_file(name)
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise InvalidArgument(
            f"[emu] model {name!r}: 'two_level', 'none', 'package.module:function' and the path of"
            " a file of curves (.csv) are allowed"
        )
    try:
        found: Model = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(
            f"[emu] model {name!r} cannot be had: {error}; give a function of a module that Python"
            " imports here"
        ) from None
    if not callable(found):
        raise InvalidArgument(f"[emu] model {name!r} is a {type(found).__name__}: give a function")
    return found


def _none(operation: str, shape: Shape, links: Links) -> Curve:
    return Curve.of([(0, 0.0), *((1 << power, 0.0) for power in range(48))], "given")


def _of_file(path: str) -> Model:
    curves = read_curves(path)

    def of_file(operation: str, shape: Shape, links: Links) -> Curve:
        curve = curves.get((operation, shape))
        if curve is None:
            has = ", ".join(str(other) for name, other in sorted(curves) if name == operation)
            raise InvalidArgument(
                f"[emu] the curves {path} have no {operation} of {shape}:"
                f" {has or 'none of it at all'}; add it, or take the model 'two_level'"
            )
        return curve

    return of_file


def ask(asked: Model, operation: str, shape: Shape, links: Links) -> Curve:
    """What a model says.

    Raises:
        InvalidArgument: for what it raises, and for what is no curve.
    """
    name = getattr(asked, "__qualname__", repr(asked))
    try:
        curve = asked(operation, shape, links)
    except Exception as error:  # a user's own code
        if isinstance(error, InvalidArgument) and asked.__module__.startswith("gear.emu."):
            raise
        raise InvalidArgument(
            f"[emu] the model {name} raised {type(error).__name__} for {operation} of {shape}:"
            f" {error}"
        ) from error
    if not isinstance(curve, Curve):
        raise InvalidArgument(
            f"[emu] the model {name} gave a {type(curve).__name__} for {operation} of {shape}: a"
            " gear.emu.Curve is allowed"
        )
    return curve
