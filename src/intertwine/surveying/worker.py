"""What one process of a survey does. Imported once by the fork server, so that libraries load once."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import asdict
from multiprocessing.connection import Connection

import torch
import torch._dynamo  # what torch.export imports when it is first called

from intertwine import verify
from intertwine.errors import IntertwineError
from intertwine.surveying.libraries import build
from intertwine.surveying.surveys import Row, limit_memory, limit_time
from intertwine.vision_shim import import_transformers, import_vision

for library in ("torchvision", "timm"):
    with contextlib.suppress(IntertwineError):  # without the extra the other libraries still work
        import_vision(library)
with contextlib.suppress(IntertwineError):
    import_transformers().AutoModel  # noqa: B018  transformers imports when it is asked


def work(send: Connection, spec: str, gigabytes: float, seconds: float) -> None:
    """Verify one model and send its row."""
    torch.set_num_threads(1)
    limit_memory(gigabytes)
    limit_time(seconds)
    warnings.simplefilter("ignore")
    try:
        row = _row(spec)
    except MemoryError:
        row = Row(spec, "failed", error=f"needs more than {gigabytes:g} GB")
    except Exception as error:  # any failure of a third party's model is a result of the survey
        text = str(error).strip().splitlines() or [""]
        row = Row(spec, "failed", error=f"{type(error).__name__}: {text[0][:300]}")
    send.send(asdict(row))


def _row(spec: str) -> Row:
    source = build(spec)
    count = sum(p.numel() for p in source.model.parameters())
    report = verify(source.model, source.example, kwargs=source.kwargs)
    return Row(
        spec,
        report.verdict,
        count,
        report.max_error,
        report.control_error,
        report.parameter_coverage,
        report.axes,
        {name: reason for name, reason in report.frozen.items() if not reason.startswith("it is an output")},
        tuple(report.unknown_ops),
        {k: round(v, 3) for k, v in report.seconds.items()},
    )


def _warm_up() -> None:
    """One model, so that what torch and transformers fill when first used is there in every process."""
    with warnings.catch_warnings(), contextlib.suppress(IntertwineError):
        warnings.simplefilter("ignore")
        _row("hf:llama")


_warm_up()
