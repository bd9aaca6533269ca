"""Response models, made from the types in `wire.answers`: fields are declared only there.

A route returns `Answer[Plan]` or `list[Answer[Document]]`: to a type checker that is the type itself. FastAPI finds the
model behind it, validates the answer with it, and puts it in the OpenAPI document.
"""

from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema

from walkgraph.wire.answers import deployments, documents, keys, plans, runs, traces, watching

_NAMES: dict[Any, str] = {
    deployments.SessionEnds: "SessionEnds",
    deployments.SessionKept: "SessionShown",
    documents.GalleryEntry: "GalleryEntry",
    documents.GalleryTask: "GalleryTask",
    keys.AuditEntry: "AuditShown",
    keys.KeyMade: "KeyMade",
    plans.PlannedRank: "RankShown",
    runs.ApprovalShown: "ApprovalWithValues",
    runs.LeftOut: "LeftOut",
    runs.Steered: "SteerShown",
    traces.TraceListed: "TraceListed",
    watching.Breakpoint: "BreakShown",
}
"""Names in the OpenAPI document; the default is the type's name with `Shown`."""
_DEFAULTS: dict[Any, dict[str, Any]] = {
    documents.Document: {"description": ""},
    plans.Loop: {"within": None},
    runs.NodeTime: {"walk": "", "inside": Field(default_factory=dict), "spans": False, "kept": 0},
    runs.Error: {"node": None, "port": None, "walk": None, "iteration": (), "rank": None, "retryable": False},
}
"""Defaults of fields that rows written by another version may lack."""


class _Shown(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Open(_Shown):
    model_config = ConfigDict(extra="allow")


_BASES: dict[Any, type[_Shown]] = {runs.Error: _Open}
"""Base models of types that also pass on undeclared keys, which another version may have written."""


class _Model:
    """Makes pydantic use the model of the annotated type."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(model_of(source))


T = TypeVar("T")
Answer = Annotated[T, _Model()]


@cache
def model_of(kind: Any) -> type[BaseModel]:
    """The model of a `TypedDict`, including models of the types that it holds."""
    defaults = _DEFAULTS.get(kind, {})
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {name: (_modelled(hint), defaults.get(name, ...)) for name, hint in hints.items()}
    name = _NAMES.get(kind, f"{kind.__name__}Shown")
    return create_model(name, __base__=_BASES.get(kind, _Shown), __doc__=kind.__doc__, __module__=__name__, **fields)


def _modelled(hint: Any) -> Any:
    """A type hint with every `TypedDict` replaced by its model."""
    if is_typeddict(hint):
        return model_of(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if not inner or origin is Literal:
        return hint
    held = tuple(_modelled(one) for one in inner)
    return Union[held] if origin in (Union, UnionType) else origin[held]  # noqa: UP007
