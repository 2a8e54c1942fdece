"""Predicts link loads on a lab: by its kernels' tables if it is up, else by the planned ones."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.base.errors import InputError
from rocelab.base.options import member_of, of_option
from rocelab.base.progress import ProgressSink, no_progress
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.lab.lab import PlannedLab, RunningLab
from rocelab.planning.fabric import Fabric
from rocelab.prediction.matrix import FlowRow, rows_of_jobs
from rocelab.prediction.prediction_spec import read_asked
from rocelab.prediction.predictor import Setting, asked_fabric, predict_document
from rocelab.results.prediction import Prediction
from rocelab.routes.models import Model


def predict(
    lab: PlannedLab[RunningLab] | RunningLab,
    flows: Sequence[FlowRow | JobSpec],
    *,
    scheme: str | None = None,
    hashing: str | None = None,
    model: str = Model.KERNEL,
    progress: ProgressSink = no_progress,
) -> Prediction:
    """Where flows and the flows of jobs land: loads of links, balance, polarization.

    `scheme`, `hashing` and `model` are as of `rocelab predict`. Raises InputError if something does
    not fit the lab or cannot be predicted, SpecError for a wrong scheme or hashing, NoPathError if
    a flow does not arrive.
    """
    jobs = [flow for flow in flows if isinstance(flow, JobSpec)]
    network = next((job.network for job in jobs if job.network is not None), None)
    fabric, setting = setting_of(lab.network(network), scheme, hashing, model)
    rows = [flow for flow in flows if isinstance(flow, FlowRow)]
    rows += rows_of_jobs(plan_jobs(fabric, jobs)) if jobs else []
    return predict_document(fabric, rows, setting, progress)


def setting_of(
    lab: PlannedLab[RunningLab] | RunningLab, scheme: str | None, hashing: str | None, model: str
) -> tuple[Fabric, Setting]:
    """The fabric, of a lab with several networks the first, and the choices that are assumed.
    Raises as `predict` does."""
    lab = lab.network(lab.fabric.network_name)
    with of_option("--model"):
        choice = member_of(Model, model)
    if choice is not Model.KERNEL and scheme is not None:
        raise InputError(
            f"--model {model} with --scheme {scheme}", hint="an ASIC's model is a scheme of its own"
        )
    asked = read_asked(scheme, hashing)
    if choice is not Model.KERNEL or not isinstance(lab, RunningLab):
        return asked_fabric(lab.fabric, asked.scheme, asked.hashing), Setting(model=choice)
    steering = lab.steering.model()
    fabric = asked_fabric(lab.fabric, asked.scheme or steering.scheme, asked.hashing)
    return fabric, Setting(lab.read_fibs(), Model.KERNEL, steering.entries)
