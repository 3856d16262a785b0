"""Classes of a project: added, renamed, coloured, merged and removed."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from mgcap.labelling.classes import COLOUR, LONGEST_NAME
from mgcap.labelling.live import Live
from mgcap.labelling.project import HasLabelsError
from mgcap.serve.labellers import person_of

Name = Annotated[str, Field(min_length=1, max_length=2 * LONGEST_NAME)]
Colour = Annotated[str, Field(pattern=COLOUR)]
Number = Annotated[int, Field(ge=1, le=1_000_000)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewClass(_Body):
    """A class to add."""

    name: Name
    colour: Colour | None = None


class ChangedClass(_Body):
    """Another name or colour of a class."""

    number: Number
    name: Name | None = None
    colour: Colour | None = None


class GoneClass(_Body):
    """A class to remove: its labels go to another class, or away; it stays if it has some and neither is said."""

    number: Number
    into: Number | None = None
    with_labels: bool = False


def add_classes(router: APIRouter, live: Live, user: str) -> None:
    """Routes on classes."""

    @router.post("/classes/add", summary="Add a class")
    def add(body: NewClass) -> dict[str, Any]:
        made = live.project.add_class(body.name, body.colour)
        live.refresh(classes=True)
        return {"number": made.number, "name": made.name, "colour": made.colour, "revision": live.revision}

    @router.post("/classes/change", summary="Rename or recolour a class")
    def change(body: ChangedClass) -> dict[str, Any]:
        live.project.change_class(body.number, body.name, body.colour)
        live.refresh(classes=True)
        return {"revision": live.revision}

    @router.post("/classes/remove", summary="Remove a class, or merge it into another")
    def remove(request: Request, body: GoneClass) -> dict[str, Any]:
        person = person_of(request, user)
        try:
            count, removed = live.project.remove_class(body.number, person, body.into, body.with_labels), True
        except HasLabelsError as error:  # which is asked about
            count, removed = error.labels, False
        live.refresh(classes=True)
        return {"labels": count, "removed": removed, "revision": live.revision}
