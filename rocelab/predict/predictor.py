"""Predicts the link loads of flows or jobs on a lab, from its kernels' tables or as planned.

Makes a `LinkLoads` and its document, for `rocelab predict` and `rocelab compare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocelab.errors import InputError
from rocelab.forwarding.fib import FibOf
from rocelab.forwarding.steering import EntryKey
from rocelab.plan.build import plan
from rocelab.plan.fabric import Fabric
from rocelab.predict.choice import Model, chooser
from rocelab.predict.document import Prediction, prediction
from rocelab.predict.groups import GroupOf, order_is_planned, planned_groups, read_groups
from rocelab.predict.loads import LinkLoads, land
from rocelab.predict.matrix import FlowRow, Matrix, matrix_of
from rocelab.predict.wires import Wires
from rocelab.progress import ProgressSink, no_progress
from rocelab.spec.model import HashingSpec, HashWeights
from rocelab.spec.schemes import SchemeSpec


@dataclass(frozen=True, slots=True)
class Setting:
    """The inputs that decide paths: the tables of running switches (None: planned ones), the model
    of their choice, and a running controller's entries."""

    fib_of: FibOf | None = None
    model: Model = Model.KERNEL
    entries: Mapping[EntryKey, int] | None = None


def asked_fabric(
    fabric: Fabric, scheme: SchemeSpec | None = None, hashing: HashingSpec | None = None
) -> Fabric:
    """The fabric under another scheme or other hashing; None keeps its own.

    Raises InputError for a scheme that the hashing does not allow.
    """
    changed = {"scheme": scheme, "hashing": hashing}
    update = {key: value for key, value in changed.items() if value is not None}
    return plan(fabric.spec.model_copy(update=update)) if update else fabric


def predict_loads(
    wires: Wires,
    matrix: Matrix,
    setting: Setting,
    progress: ProgressSink = no_progress,
) -> LinkLoads:
    """The link loads of a matrix. Raises InputError if they cannot be predicted, NoPathError if a
    flow does not arrive."""
    choose = chooser(wires, matrix, setting.model, setting.entries)
    return land(wires, matrix, _groups(wires, setting), choose, progress)


def predict_document(
    fabric: Fabric,
    rows: Sequence[FlowRow],
    setting: Setting,
    progress: ProgressSink = no_progress,
) -> Prediction:
    """The document of flows' link loads. Raises as `predict_loads` does."""
    wires = Wires(fabric)
    matrix = matrix_of(wires, rows)
    loads = predict_loads(wires, matrix, setting, progress)
    notes = []
    if setting.fib_of is None and not order_is_planned(fabric):
        notes.append(
            "links are unnumbered, so the order of next hops follows from the daemons' start: "
            "loads hold as a distribution, and which link has which does not"
        )
    tables = "planned" if setting.fib_of is None else "kernel"
    return prediction(wires, matrix, loads, tables=tables, model=setting.model, notes=notes)


def _groups(wires: Wires, setting: Setting) -> GroupOf:
    if setting.fib_of is not None:
        return read_groups(wires, setting.fib_of)
    if wires.fabric.spec.hashing.weights is not HashWeights.EQUAL:
        raise InputError(
            "weights by paths are BGP's work and not planned",
            hint="bring the lab up, or ask with `--hashing per-node`",
        )
    return planned_groups(wires)
