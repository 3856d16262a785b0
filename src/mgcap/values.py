"""Models of values that a person gives: one sentence says what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, dataclass_transform

from pydantic import BaseModel, ConfigDict, Field

from mgcap.descriptions import values_checked

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class _OneSentence(ModelMetaclass):
    """Makes instances whose errors are :class:`mgcap.errors.ValuesError`; files are read by ``model_validate``."""

    def __call__(self: Any, *given: Any, **values: Any) -> Any:
        with values_checked(known=self.model_fields):
            return super().__call__(*given, **values)


class Values(BaseModel, metaclass=_OneSentence):
    """Checked when they are made, and frozen; unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)
