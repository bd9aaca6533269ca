"""Response models, made from the types in `wire.answers`: a field is declared there, and nowhere else.

A route says `-> Answer[Plan]`, or `-> list[Answer[Document]]`: to a type checker that is the type itself, and FastAPI
finds the model behind it, which checks what is answered and stands in the OpenAPI document.
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
    runs.LeftOut: "LeftOut",
    runs.Steered: "SteerShown",
    traces.TraceListed: "TraceListed",
    watching.Breakpoint: "BreakShown",
}
"""What the OpenAPI document calls a type that isn't called by its own name and `Shown`."""
_DEFAULTS: dict[Any, dict[str, Any]] = {
    documents.Document: {"description": ""},
    plans.Loop: {"within": None},
    runs.NodeTime: {"walk": "", "inside": Field(default_factory=dict), "spans": False},
    runs.Error: {"node": None, "port": None, "walk": None, "iteration": (), "rank": None, "retryable": False},
}
"""Of fields that may be missing: rows that another version has written lack them."""


class _Shown(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Open(_Shown):
    model_config = ConfigDict(extra="allow")


_BASES: dict[Any, type[_Shown]] = {runs.Error: _Open}
"""Of types that show more keys than they declare: what another version wrote is passed on."""


class _Model:
    """Has pydantic use the model of the type that this annotates."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(model_of(source))


T = TypeVar("T")
Answer = Annotated[T, _Model()]


@cache
def model_of(kind: Any) -> type[BaseModel]:
    """The model of a `TypedDict`, with those of the types that it holds."""
    defaults = _DEFAULTS.get(kind, {})
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {name: (_modelled(hint), defaults.get(name, ...)) for name, hint in hints.items()}
    name = _NAMES.get(kind, f"{kind.__name__}Shown")
    return create_model(name, __base__=_BASES.get(kind, _Shown), __doc__=kind.__doc__, __module__=__name__, **fields)


def _modelled(hint: Any) -> Any:
    """A type hint with the models of the types that it holds."""
    if is_typeddict(hint):
        return model_of(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if not inner or origin is Literal:
        return hint
    held = tuple(_modelled(one) for one in inner)
    return Union[held] if origin in (Union, UnionType) else origin[held]  # noqa: UP007
