"""The optional parts of the installation: which extra brings a library that is missing."""

from __future__ import annotations

from importlib.util import find_spec

from rocelab.base.errors import MachineError

_EXTRAS = {
    "sim": ("numba", "llvmlite", "scipy"),
    "report": ("matplotlib",),
    "remote": ("paramiko", "cryptography"),
    "drawings": ("pydot", "pyparsing"),
    "metrics": ("prometheus_client",),
    "live": ("starlette", "uvicorn", "websockets"),
    "sweep": ("pyarrow",),
    "cluster": ("distributed",),
    "chakra": ("google",),
}
_NAMES = {"google": "protobuf", "distributed": "Dask", "prometheus_client": "prometheus-client"}
_EXTRA_OF = {library: extra for extra, libraries in _EXTRAS.items() for library in libraries}


class MissingExtraError(MachineError):
    """A library of an extra is not installed."""


def missing(error: ImportError) -> MissingExtraError | None:
    """The error for the user; None if no extra has the module that was not found."""
    library = (error.name or "").partition(".")[0]
    extra = _EXTRA_OF.get(library)
    return None if extra is None else _error(library, extra)


def need(library: str) -> None:
    """Raises MissingExtraError if a library of an extra is not installed."""
    if find_spec(library) is None:
        raise _error(library, _EXTRA_OF[library])


def _error(library: str, extra: str) -> MissingExtraError:
    return MissingExtraError(
        f"this needs {_NAMES.get(library, library)}, which is not installed",
        f'pip install "rocelab[{extra}]"',
    )
