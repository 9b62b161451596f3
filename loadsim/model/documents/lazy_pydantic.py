"""Names of pydantic, imported when they are first used: it takes 50 ms, and engines and commands on logs use none."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler as GetCoreSchemaHandler
    from pydantic import TypeAdapter as TypeAdapter
    from pydantic_core import CoreSchema as CoreSchema
    from pydantic_core import ErrorDetails as ErrorDetails
    from pydantic_core import InitErrorDetails as InitErrorDetails
    from pydantic_core import PydanticCustomError as PydanticCustomError
    from pydantic_core import ValidationError as ValidationError
    from pydantic_core import core_schema as core_schema
else:

    def __getattr__(name: str) -> Any:
        """Import a name of `pydantic_core` (PEP 562); an import statement asks for `__path__` first."""
        if name == "__path__":
            raise AttributeError(name)
        return getattr(import_module("pydantic_core"), name)

    class TypeAdapter:
        """The adapter of a type, made when it is first used."""

        def __init__(self, of: Any) -> None:
            self._of = of

        def __class_getitem__(cls, of: Any) -> type[TypeAdapter]:
            return cls

        @cached_property
        def _made(self) -> Any:
            return import_module("pydantic").TypeAdapter(self._of)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._made, name)
