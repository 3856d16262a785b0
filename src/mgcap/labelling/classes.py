"""The classes of a project: their numbers stay for good, so that the history of labels can always be read."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from mgcap.errors import DataError
from mgcap.report.colours import class_colours

#: The longest name, and the most classes of a project.
LONGEST_NAME, MOST_CLASSES = 100, 200
#: Colours of classes whose names say nothing, in their order.
STRONG = ("#e4572e", "#2e86de", "#ffc914", "#8e44ad", "#17bebb", "#e84393", "#a0522d", "#7bc043", "#34495e")
COLOUR = r"^#[0-9a-f]{6}$"


class LabelClass(BaseModel):
    """A class of a project.

    Attributes:
        number: Stays the same whatever becomes of the class.
        name: As people write it.
        colour: ``#rrggbb``.
        learnt: What the base model calls it, if the class is one of its own.
        removed: Whether it is a class no more; the history still names it.
        merged: The class that its labels went to, if they did.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: Annotated[int, Field(ge=1)]
    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
    colour: Annotated[str, Field(pattern=COLOUR)]
    learnt: str | None = None
    removed: bool = False
    merged: int | None = None


def clean_name(name: str) -> str:
    """A name without signs that cannot be seen, and spaces around it.

    Raises:
        DataError: If nothing is left, or too much.
    """
    plain = "".join(" " if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else letter for letter in name)
    plain = unicodedata.normalize("NFC", " ".join(plain.split()))
    if not plain:
        raise DataError("a class needs a name")
    if len(plain) > LONGEST_NAME:
        raise DataError(f"the name of a class has at most {LONGEST_NAME} letters")
    return plain


def current(classes: Sequence[LabelClass]) -> list[LabelClass]:
    """Those that labels can have."""
    return [own for own in classes if not own.removed]


def find_class(classes: Sequence[LabelClass], number: int) -> LabelClass:
    """A class that labels can have.

    Raises:
        DataError: If there is none of this number.
    """
    for own in current(classes):
        if own.number == number:
            return own
    raise DataError(f"there is no class of the number {number}")


def final_number(classes: Sequence[LabelClass], number: int | None) -> int | None:
    """The class that labels of a class have by now: what it was merged into; None if it was removed."""
    known = {own.number: own for own in classes}
    for _ in range(len(classes) + 1):  # a strange file may merge in circles
        own = None if number is None else known.get(number)
        if own is None:
            return None
        if not own.removed:
            return own.number
        number = own.merged
    return None


def add_class(
    classes: Sequence[LabelClass], name: str, colour: str | None = None, learnt: str | None = None
) -> list[LabelClass]:
    """With one more.

    Raises:
        DataError: If there is one of this name, or too many.
    """
    name = clean_name(name)
    _check_free(classes, name)
    if len(current(classes)) >= MOST_CLASSES:
        raise DataError(f"a project has at most {MOST_CLASSES} classes")
    number = 1 + max((own.number for own in classes), default=0)
    return [*classes, LabelClass(number=number, name=name, colour=colour or _colour(classes, name), learnt=learnt)]


def change_class(
    classes: Sequence[LabelClass], number: int, name: str | None = None, colour: str | None = None
) -> list[LabelClass]:
    """With another name or colour of one.

    Raises:
        DataError: If there is no such class, or another one of this name.
    """
    own = find_class(classes, number)
    if name is not None:
        name = clean_name(name)
        _check_free([each for each in classes if each.number != number], name)
    given = {"name": name or own.name, "colour": colour or own.colour}
    changed = LabelClass.model_validate({**own.model_dump(), **given})
    return [changed if each.number == number else each for each in classes]


def remove_class(classes: Sequence[LabelClass], number: int, into: int | None = None) -> list[LabelClass]:
    """Without one, whose labels go to another class if one is given."""
    find_class(classes, number)
    if into is not None and find_class(classes, into).number == number:
        raise DataError("a class cannot be merged into itself")
    gone = {"removed": True, "merged": into}
    return [own.model_copy(update=gone) if own.number == number else own for own in classes]


def _check_free(classes: Sequence[LabelClass], name: str) -> None:
    if any(own.name.casefold() == name.casefold() for own in current(classes)):
        raise DataError(f"there is a class '{name}' already")


def _colour(classes: Sequence[LabelClass], name: str) -> str:
    """What people expect of the name, or a colour that stands out from images and that no class has."""
    taken = {own.colour for own in current(classes)}
    expected = class_colours([name])[0].lower()
    choices = [expected, *STRONG] if expected != class_colours(["?"])[0].lower() else [*STRONG]
    more = (own.lower() for own in class_colours(["?"] * (MOST_CLASSES + 2)))  # all of them differ
    return next(colour for colour in (*choices, *more) if colour not in taken)
