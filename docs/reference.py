"""The API reference as plain Markdown: the signature and the docstring of each public name, for `api.md`.

Everything is read from the source, so that annotations and defaults are shown as they are written. The site shows the
same names through mkdocstrings: `docs/commands.py` puts a directive in place of each entry.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[1] / "rubric_integrations"
WIDTH = 100
"""Characters beyond which a signature has a line for each parameter."""
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example):\n", re.MULTILINE)
_ENTRY = re.compile(r"^    ([\w*][\w*.\[\], ]*): ?(?=\S|$)", re.MULTILINE)

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = ast.ClassDef | Function


def entry(package: str, name: str, value: Any) -> str:
    """Return the entry of a public name: an anchor, a heading, its signature and its docstring."""
    node = definition(value)
    head = f'<a id="{package}.{name}"></a>\n\n### `{name}`\n\n'
    if node is None:
        text, docstring = assignment(name)
        return f"{head}```py\n{text}\n```\n\n{markdown(docstring)}\n"
    if not isinstance(node, ast.ClassDef):
        return f"{head}{described(node, name)}\n"
    parts = [head + f"```py\n{class_signature(value, name)}\n```\n\n{markdown(ast.get_docstring(node) or '')}"]
    methods = {member.name: member for member in node.body if isinstance(member, Function)}
    parts += [
        f"**`{name}.{method.name}`**\n\n{described(method, method.name)}"
        for method in methods.values()
        if not method.name.startswith("_") and ast.get_docstring(method)
    ]
    return "\n\n".join(parts) + "\n"


def definition(value: Any) -> Definition | None:
    """Return the definition of a class or a function of ours; None for another value."""
    module = sys.modules.get(str(getattr(value, "__module__", "")))
    name = getattr(value, "__qualname__", None)
    path = Path(str(getattr(module, "__file__", "")))
    if name is None or not path.is_relative_to(ROOT):
        return None
    return next((node for node in tree(path).body if isinstance(node, Definition) and node.name == name), None)


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def assignments() -> dict[str, tuple[ast.expr, str]]:
    """Return the value of each documented assignment at the top level of a module, with its docstring."""
    documented: dict[str, tuple[ast.expr, str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node, following in pairwise(tree(path).body):
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and value is not None and isinstance(following, ast.Expr):
                docstring = getattr(following.value, "value", None)
                if isinstance(docstring, str):
                    documented.setdefault(target.id, (value, cleandoc(docstring)))
    return documented


def assignment(name: str) -> tuple[str, str]:
    """Return a type alias or a constant as code, without a long value, and its docstring.

    Raises:
        KeyError: No module has a documented assignment of that name.
    """
    value, docstring = assignments()[name]
    text = code(value)
    return (f"{name} = {text}" if len(text) <= 3 * WIDTH else name), docstring


def described(node: Function, name: str) -> str:
    """Return the signature and the docstring of a function; for a property, its docstring."""
    text = markdown(ast.get_docstring(node) or "")
    if any("property" in code(decorator) for decorator in node.decorator_list):
        return text
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    returns = f" -> {code(node.returns)}" if node.returns else ""
    return f"```py\n{prefix}{signature(name, parameters(node), returns)}\n```\n\n{text}"


def class_signature(value: type, name: str) -> str:
    """Return how an object is made: the parameters of the constructor, or the fields of a record."""
    fields: dict[str, str] = {}
    for cls in value.__mro__:
        node = definition(cls)
        if not isinstance(node, ast.ClassDef):
            continue
        constructor = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
        if constructor is not None and not fields:
            return signature(name, parameters(constructor))
        own = [member for member in node.body if isinstance(member, ast.AnnAssign)]
        earlier = {member.target.id: field(member) for member in own if isinstance(member.target, ast.Name)}
        fields = {**{key: text for key, text in earlier.items() if text}, **fields}
    return signature(name, list(fields.values())) if fields else f"class {name}"


def field(node: ast.AnnAssign) -> str:
    """Return a field of a record as a parameter; empty for a class variable or a private field."""
    target, annotation = code(node.target), code(node.annotation)
    if target.startswith("_") or target == "model_config" or "ClassVar" in annotation:
        return ""
    default = node.value
    if isinstance(default, ast.Call) and code(default.func) in ("Field", "field"):
        keywords = {keyword.arg: keyword.value for keyword in default.keywords}
        factory = keywords.get("default_factory")
        default = keywords.get("default") or (ast.Constant(...) if factory else None)
    return f"{target}: {annotation}" + (f" = {code(default)}" if default else "")


def parameters(node: Function) -> list[str]:
    """Return the parameters of a function as code, without `self`, `cls` and private ones."""
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    listed = [_parameter(*pair) for pair in zip(plain, defaults, strict=True) if pair[0].arg not in ("self", "cls")]
    if arguments.vararg:
        listed.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        listed.append("*")
    listed += [_parameter(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return [*listed, f"**{arguments.kwarg.arg}"] if arguments.kwarg else listed


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {code(argument.annotation)}" if argument.annotation else ""
    return f"{argument.arg}{annotation}" + (f" = {code(default)}" if default else "")


def code(node: ast.AST) -> str:
    """Return the code of a node, with double quotes where it has none inside a text."""
    text = ast.unparse(node)
    return text if '"' in text else text.replace("'", '"')


def signature(name: str, listed: list[str], returns: str = "") -> str:
    """Return a signature, with a line for each parameter if it is long."""
    line = f"{name}({', '.join(listed)}){returns}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {parameter}," for parameter in listed), f"){returns}"])


def markdown(docstring: str) -> str:
    r"""Return a docstring as Markdown: sections with lists, and examples as code.

    Example:
        >>> print(markdown("Add.\n\nArgs:\n    a: The first\n        number.\n\nReturns:\n    The sum."))
        Add.
        <BLANKLINE>
        Args:
        <BLANKLINE>
        - `a`: The first number.
        <BLANKLINE>
        Returns: The sum.
    """
    introduction, *sections = _SECTION.split(docstring)
    parts = [introduction.strip()]
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        if title == "Example":
            parts.append("Example:\n\n" + _example(dedent(text).strip()))
        elif title in ("Returns", "Yields"):
            parts.append(f"{title}: {dedent(text).strip()}")
        else:
            names = _ENTRY.split(text.rstrip())[1:]
            items = zip(names[::2], names[1::2], strict=True)
            parts.append(f"{title}:\n\n" + "\n".join(f"- `{key}`: {' '.join(value.split())}" for key, value in items))
    return "\n\n".join(part for part in parts if part)


def _example(text: str) -> str:
    """Return the text of an example, in which paragraphs that begin with `>>>` are code."""
    chunks = re.split(r"\n\n+", text)
    return "\n\n".join(f"```py\n{chunk}\n```" if chunk.startswith(">>>") else chunk for chunk in chunks)
