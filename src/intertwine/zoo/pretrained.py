"""`hf:DIR` and `hf:ORG/NAME`: a model that `save_pretrained` wrote, loaded as transformers loads it.

The class is the one that the config names, weights are read from safetensors (sharded or not) or with
`weights_only`, and code in the folder is never run unless the user allows it. The model returns only what its
head predicts, as the toys do (`huggingface.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from intertwine.data.preparation import Preparation
from intertwine.errors import IntertwineError, ModelError, WeightsError
from intertwine.reading import user_path
from intertwine.text import first_line, quoted
from intertwine.untrusted import (
    CONFIG,
    WeightsOf,
    assert_config,
    assert_plain,
    read_json_file,
)
from intertwine.vision_shim import import_transformers, offline
from intertwine.zoo.building import bounded
from intertwine.zoo.example_calls import call_of
from intertwine.zoo.huggingface import (
    build_hf,
    class_of,
    experts_in_batches,
    keep_predictions,
    quietly,
)
from intertwine.zoo.reaching import hub_if_there
from intertwine.zoo.sources import Source, Wanted
from intertwine.zoo.vision import statistics_text

_LISTED = 6
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model")


def hf_source(spec: str, wanted: Wanted) -> Source:
    """The model of `hf:...`: a folder, a name of the hub, or a toy of a family."""
    name = spec.partition(":")[2]
    folder = user_path(name, ModelError)
    if (folder / CONFIG).is_file():
        return _from_folder(spec, folder, wanted, folder)
    if folder.is_dir() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        what = "is no folder" if not folder.is_dir() else f"holds no {CONFIG}"
        raise ModelError(
            f"{quoted(str(folder))} {what}",
            where=str(folder.absolute()),
            do="give a folder that save_pretrained wrote",
        )
    if "/" in name:
        return _from_folder(spec, name, wanted, _in_cache(name))
    model, example, kwargs = build_hf(name)
    return Source(spec, model, example, kwargs, prepare=prepare_for(model), family="hf")


def _from_folder(spec: str, place: str | Path, wanted: Wanted, folder: Path | None) -> Source:
    if folder is not None:  # before anything else is imported or read
        assert_plain(folder)
        assert_config(read_json_file(folder / CONFIG), str(place), run_code=wanted.run_code)
    transformers = import_transformers()
    with _transformers_errors(spec, isinstance(place, Path)), quietly(transformers):
        with hub_if_there() if folder is None else offline():
            config = _config(transformers, place, wanted)
            loader = _class(transformers, config, wanted)
            options = {"trust_remote_code": True} if wanted.run_code else {}
            if wanted.classes is not None:
                config.num_labels = wanted.classes
            if torch.get_default_device().type == "meta":  # shapes are enough: no weight is read
                make = getattr(loader, "from_config", None) or loader._from_config
                with bounded(spec):
                    model = make(config, **options)
            else:
                with bounded(spec, WeightsOf(folder) if folder is not None else None):
                    model, report = loader.from_pretrained(
                        place, config=config, output_loading_info=True, **options
                    )
                _check_complete(model, report, spec)
        folder = folder if folder is not None else _in_cache(str(place))
        experts_in_batches(model)
        model.register_forward_hook(keep_predictions)
        example, kwargs = call_of(model, config)
        prepare = prepare_for(model, folder)
    return Source(spec, model, example, kwargs, prepare=prepare, folder=folder, family="hf")


def _config(transformers: Any, place: str | Path, wanted: Wanted) -> Any:
    plain, _ = transformers.PretrainedConfig.get_config_dict(place)
    assert_config(plain, str(place), run_code=wanted.run_code)
    return transformers.AutoConfig.from_pretrained(place, trust_remote_code=wanted.run_code)


def _class(transformers: Any, config: Any, wanted: Wanted) -> Any:
    """The class that the config names, else the one with the most telling head for its family."""
    remote = [name for name in getattr(config, "auto_map", None) or {} if name.startswith("AutoModel")]
    if remote and wanted.run_code:
        return getattr(transformers, remote[0])
    for name in getattr(config, "architectures", None) or ():
        found = getattr(transformers, str(name), None)
        if isinstance(found, type) and issubclass(found, nn.Module):
            return found
    return class_of(transformers, config)


def _check_complete(model: nn.Module, report: Any, spec: str) -> None:
    """Every parameter comes from the folder: transformers would draw the missing ones at random."""
    missing = sorted(set(report["missing_keys"]) & {name for name, _ in model.named_parameters()})
    if missing:
        more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
        raise WeightsError(
            f"{spec} lacks the weights {', '.join(missing[:_LISTED])}{more}",
            so="they would be random",
            do="check that the weights belong to the architecture that config.json names",
        )
    for name, value in model.named_parameters():
        if not bool(value.isfinite().all()):
            raise WeightsError(f"{name} of {spec} holds NaN or infinite weights", so="nothing was loaded")


def prepare_for(model: Any, folder: Path | None = None) -> Preparation:
    """What belongs to the weights: the image processor's numbers, the tokenizer, what the head predicts."""
    processor = _json(folder, "preprocessor_config.json")
    size = processor.get("crop_size") or processor.get("size") or {}
    side = size if isinstance(size, int) else size.get("height", size.get("shortest_edge"))
    known = statistics_text(processor.get("image_mean"), processor.get("image_std"))
    has_tokenizer = folder is not None and any((folder / name).is_file() for name in _TOKENIZERS)
    config = model.config
    positions = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    return Preparation(
        normalize=known if processor.get("do_normalize", True) else None,
        size=side if isinstance(side, int) else None,
        tokenizer=str(folder) if has_tokenizer else None,
        context=positions if isinstance(positions, int) and positions > 0 else None,
        objective=_objective(type(model).__name__, model),
    )


def _objective(name: str, model: Any) -> str | None:
    if getattr(model, "main_input_name", "") != "input_ids" or model.config.is_encoder_decoder:
        return None
    if "CausalLM" in name or "LMHead" in name:
        return "causal"
    if "MaskedLM" in name or "PreTraining" in name:
        return "masked"
    return None if "For" in name else "embedding"


def _json(folder: Path | None, name: str) -> dict[str, Any]:
    path = folder / name if folder is not None else None
    if path is None or not path.is_file():
        return {}
    found = read_json_file(path)
    return found if isinstance(found, dict) else {}


def _in_cache(name: str) -> Path | None:
    """The folder of a hub model that has been fetched before."""
    import_transformers()
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(name, CONFIG)
    except Exception as error:  # names that the hub does not allow
        raise ModelError(f"{quoted(name)} is no name of the hub: {first_line(error)}") from error
    return Path(found).parent if isinstance(found, str) else None


@contextmanager
def _transformers_errors(spec: str, local: bool) -> Iterator[None]:
    """Whatever transformers raises, as one message of ours."""
    try:
        yield
    except (IntertwineError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # the code of a folder may exit, and what panics in Rust is no Exception
        reason = first_line(error) or type(error).__name__
        if local:
            raise ModelError(
                f"transformers cannot load {spec}: {reason}",
                do="give a folder that save_pretrained of the installed transformers can read",
            ) from error
        raise ModelError(
            f"{spec} is neither a folder nor in the cache, and cannot be fetched from the hub: {reason}",
            so="nothing was loaded",
            do="check the name and the network, or fetch it elsewhere and give hf:DIR",
        ) from error
