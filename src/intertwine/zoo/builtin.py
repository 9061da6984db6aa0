"""The model sources that come with us, each registered with `@model_source`. Imports are late."""

from __future__ import annotations

from os.path import isfile, join

from intertwine.data.preparation import Preparation
from intertwine.errors import InputError
from intertwine.zoo import registry
from intertwine.zoo.sources import MERGED, Source, Wanted, examples, model_source


@model_source("zoo", help="a net of the source papers: zoo:resnet20, zoo:vgg16, zoo:digits-vgg, ...")
def from_zoo(spec: str, wanted: Wanted) -> Source:
    """A net of the zoo with random weights."""
    name = _name(spec)
    entry = registry.entry(name)
    if wanted.pretrained:
        raise InputError(
            f"{spec} has no trained weights of a library", do="give --weights FILE, or shipped:0"
        )
    other = {} if wanted.classes in (None, entry.classes) else {"classes": wanted.classes}
    model = registry.build(name, **other)
    context = entry.shape[0] if entry.objective else None
    prepare = Preparation(context=context, objective=entry.objective)
    return Source(spec, model, examples([entry.shape], entry.tokens), prepare=prepare)


@model_source(
    "torchvision", form="NAME[@WHICH]", help='random weights unless @DEFAULT, @IMAGENET1K_V2 (extra "vision")'
)
def from_torchvision(spec: str, wanted: Wanted) -> Source:
    """A model of torchvision; its weights come from torch.hub's folder, or are fetched into it."""
    from intertwine.zoo import vision

    return vision.torchvision_source(spec, wanted)


@model_source("timm", form="NAME[.TAG]", help='random weights unless .TAG or --pretrained (extra "vision")')
def from_timm(spec: str, wanted: Wanted) -> Source:
    """A model of timm; its weights come from the hub's cache, or are fetched into it."""
    from intertwine.zoo import vision

    return vision.timm_source(spec, wanted)


@model_source("hf", form="DIR", help='of save_pretrained; ORG/NAME; a toy, hf:bert?layers=2 (extra "text")')
def from_hugging_face(spec: str, wanted: Wanted) -> Source:
    """A model of transformers: from a folder, from the hub, or small and random from a config."""
    from intertwine.zoo import pretrained

    return pretrained.hf_source(spec, wanted)


@model_source(
    "hub",
    form="DIR:NAME",
    help="an entry of hubconf.py, there or in torch.hub's cache; needs --run-code",
    runs_code=True,
)
def from_hub(spec: str, wanted: Wanted) -> Source:
    """What an entry point of a hubconf.py returns."""
    from intertwine.zoo.hub import hub_source

    return hub_source(spec, wanted)


@model_source("diffusers", help='unet2d, unet2d-condition: small, from a config (extra "diffusion")')
def from_diffusers(spec: str, wanted: Wanted) -> Source:
    """A small random UNet."""
    from intertwine.zoo.diffusion import build_diffusers

    return Source(spec, *build_diffusers(_name(spec)))


@model_source(
    "file.pt2",
    form="path/to/file.pt2",
    help="an exported program; it may hold pickles, so it needs --run-code",
    runs_code=True,
    matches=lambda spec: spec.endswith(".pt2"),
    file=lambda spec: spec,
)
def from_program(spec: str, wanted: Wanted) -> Source:
    """An exported program, with the example that it was exported on."""
    from intertwine.errors import ModelError
    from intertwine.graph.program import free_batch, load_program
    from intertwine.reading import existing_file

    path = existing_file(spec, "exported program", ModelError)
    if not wanted.run_code:
        raise InputError(
            f"{path} is an exported program, which may hold pickled Python objects",
            so="nothing was loaded or run",
            do="if you trust the file, give --run-code",
        )
    model, example, kwargs = load_program(path)
    free_batch(model, example, kwargs)
    return Source(spec, model, example, kwargs)


@model_source(
    "file.onnx",
    form="path/to/file.onnx",
    help='an ONNX graph; no code is run (extra "onnx")',
    matches=lambda spec: spec.endswith(".onnx"),
    file=lambda spec: spec,
)
def from_onnx(spec: str, wanted: Wanted) -> Source:
    """A graph of ONNX as a module."""
    from intertwine.zoo.onnx_file import load_onnx

    return Source(spec, *load_onnx(spec))


@model_source(
    "file.py",
    form="path/to/file.py:factory",
    help="calls factory(); THIS RUNS THE PYTHON CODE IN THE FILE",
    runs_code=True,
    matches=lambda spec: ".py:" in spec,
    file=lambda spec: spec.rpartition(":")[0],
)
def from_file(spec: str, wanted: Wanted) -> Source:
    """What a function in the user's file returns."""
    from intertwine.zoo.userfile import build_from_file

    return Source(spec, *build_from_file(spec))


@model_source(
    MERGED,
    form="path/to/folder",
    help="what merge wrote; --run-code where it was made by a file of yours",
    matches=lambda spec: isfile(join(spec, "recipe.json")),
)
def from_merged(spec: str, wanted: Wanted) -> Source:
    """A merged model, rebuilt by the factory of the whole one."""
    from intertwine.zoo.merged import load_source

    return load_source(spec, run_code=wanted.run_code)


def _name(spec: str) -> str:
    return spec.partition(":")[2]
