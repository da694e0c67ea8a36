# SPDX-License-Identifier: Apache-2.0
"""Specifications to the list of outputs. This is the only list: tables, indices, manifests and tests derive from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from codegen.context import make_kernel_context
from codegen.documentation.pages import plan_documentation
from codegen.naming import kernel_symbol, snake_case
from codegen.operation_context import make_operation_context
from codegen.outputs import TEMPLATES, Copy, Output
from codegen.package_context import make_package_context
from codegen.schema import make_attribute_schema, make_format_schema, schema_text
from codegen.variants import STRATEGIES, KernelVariant, list_variants
from specs.model import Operation

RUNTIME = TEMPLATES / "runtime"
PICTURES = TEMPLATES / "docs" / "pictures"
PACKAGE = PurePosixPath("convgrad")


@dataclass(frozen=True, slots=True)
class Selection:
    """What to leave out of a package written elsewhere; an empty tuple selects everything."""

    operations: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    data_formats: tuple[str, ...] = ()

    def has_variant(self, variant: KernelVariant) -> bool:
        """Whether the selection includes a kernel."""
        return (
            (not self.dtypes or variant.dtype in self.dtypes)
            and (not self.ranks or variant.rank in self.ranks)
            and (not self.data_formats or variant.data_format in self.data_formats)
        )


def plan_outputs(operations: Iterable[Operation], selection: Selection = Selection()) -> list[Output | Copy]:
    """Every file of generated/, sorted by path."""
    operations = [row for row in operations if not selection.operations or row.name in selection.operations]
    variants = [variant for variant in list_variants() if selection.has_variant(variant)]
    outputs: list[Output | Copy] = [*_plan_runtime(), *_plan_kernels(variants), *_plan_package(operations, variants)]
    outputs += _plan_schemas(operations)
    outputs += plan_documentation(operations)
    outputs += _plan_pictures()
    paths = [output.path for output in outputs]
    assert len(set(paths)) == len(paths), "two outputs share a path"
    return sorted(outputs, key=lambda output: output.path)


def _plan_runtime() -> Iterator[Copy]:
    for source in sorted(RUNTIME.rglob("*")):
        if source.is_file() and "__pycache__" not in source.parts:
            yield Copy(PurePosixPath(source.relative_to(RUNTIME).as_posix()), source)


def _plan_pictures() -> Iterator[Copy]:
    for source in sorted(PICTURES.iterdir()):
        yield Copy(PurePosixPath("docs") / "pictures" / source.name, source)


def _plan_kernels(variants: Iterable[KernelVariant]) -> Iterator[Output]:
    strategies = {strategy.name: strategy for strategy in STRATEGIES}
    for variant in variants:
        strategy = strategies[variant.strategy]
        path = PACKAGE / "kernels" / f"{kernel_symbol(variant)}.c"
        yield Output(path, strategy.template, make_kernel_context(variant, strategy))


def _plan_package(operations: list[Operation], variants: list[KernelVariant]) -> Iterator[Output]:
    for operation in operations:
        path = PACKAGE / "operations" / f"{snake_case(operation.name)}.py"
        yield Output(path, "python/operation.py.j2", make_operation_context(operation))
    for name in ("__init__.py", "operations/__init__.py", "kernel_table.py", "vocabulary.py"):
        template = f"python/{name.replace('/', '_').replace('__init__', 'init')}.j2"
        yield Output(PACKAGE / name, template, make_package_context(operations, variants, template))


def _plan_schemas(operations: list[Operation]) -> Iterator[Output]:
    folder = PurePosixPath("schema")
    yield Output(folder / "operation.schema.json", "schema/schema.json.j2", schema_text(make_format_schema()))
    for operation in operations:
        path = folder / f"{operation.name}.attributes.schema.json"
        yield Output(path, "schema/schema.json.j2", schema_text(make_attribute_schema(operation)))
