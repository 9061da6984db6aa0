"""Models whose code misbehaves: it raises, exits, prints, closes and changes whatever it can reach."""

from __future__ import annotations

import re
from pathlib import Path

HEAD = """
import builtins, os, sys, threading, warnings, torch
from torch import nn
import torch.nn.utils.prune
x = torch.ones(2, 3)
def net(): return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
class Interrupt(KeyboardInterrupt): pass
class Exit(SystemExit): pass
class Mute(Exception):
    def __str__(self): raise SystemExit(0)
class Odd:
    def __repr__(self): raise ValueError("no")
class Base(nn.Module):
    calls = 0
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
    def forward(self, x):
        self.before()
        return self.after(self.b(torch.relu(self.a(x))))
    def before(self): pass
    def after(self, y): return y
    def later(self):
        type(self).calls += 1
        return type(self).calls > 4
"""
# Refused: with exit code 2 or 3.
WRONG = """
def interrupt(): raise Interrupt
def exit_class(): raise Exit(0)
def generator_exit(): raise GeneratorExit
def mute(): raise Mute
def odd_exit(): sys.exit(Odd())
def no_words(): raise ValueError
def lines(): raise ValueError("\\n\\n")
def group(): raise BaseExceptionGroup("all", [SystemExit(0)])
def a_class(): return nn.Linear
def coroutine():
    async def make(): return net(), x
    return make()
def generator(): yield net(), x
def mapping(): return net(), {"input": x}
def unknown_argument(): return net(), x, {"nope": 1}
def nested(): return net(), torch.nested.nested_tensor([torch.zeros(3), torch.zeros(3)])
def sparse(): return net(), x.to_sparse()
class Empty(nn.Module):
    def __init__(self): pass
def no_init(): return Empty(), x
class Listing(Base):
    def named_parameters(self, *args, **kwargs): raise SystemExit(0)
def listing(): return Listing(), x
class Moving(Base):
    def to(self, *args, **kwargs): raise KeyError("to")
def moving(): return Moving(), x
class Stored(Base):
    def state_dict(self, *args, **kwargs): raise KeyError("state")
def stored(): return Stored(), x
class Stateless(Base):
    def state_dict(self, *args, **kwargs): return None
def stateless(): return Stateless(), x
class Silent(Base):
    def train(self, mode=True): super().train(mode)
    def eval(self): super().eval()
    def to(self, *args, **kwargs): super().to(*args, **kwargs)
def silent(): return Silent(), x
class Unstored(Base):
    def state_dict(self, *args, **kwargs): return {}
def unstored(): return Unstored(), x
def quantized():
    warnings.simplefilter("ignore")
    return torch.ao.quantization.quantize_dynamic(net().float(), {nn.Linear}), x
class Copied(Base):
    def __deepcopy__(self, memo): raise TypeError("no copies")
def copied(): return Copied(), x
class Evaluated(Base):
    def eval(self): sys.exit(0)
def evaluated(): return Evaluated(), x
class InterruptLater(Base):
    def before(self):
        if self.later(): raise Interrupt
def interrupt_later(): return InterruptLater(), x
class ExitLater(Base):
    def before(self):
        if self.later(): raise Exit(0)
def exit_later(): return ExitLater(), x
class RaiseLater(Base):
    def before(self):
        if self.later(): raise ValueError
def raise_later(): return RaiseLater(), x
class Nothing(Base):
    def after(self, y): return object()
def nothing(): return Nothing(), x
class Sparse(Base):
    def after(self, y): return y.to_sparse()
def sparse_output(): return Sparse(), x
def fails(*args, **kwargs): raise RuntimeError("mine")
def none(*args, **kwargs): return None
def an_instance(): builtins.isinstance = lambda *args: True; return net(), x
def no_print(): builtins.print = None; builtins.len = fails; return net(), x
def a_generator(): torch.Generator = none; return net(), x
class Replaces(Base):
    def before(self): torch.arange = torch.empty = torch.zeros = none
def replaces(): return Replaces(), x
class OnMeta(Base):
    def before(self): torch.set_default_device("meta")
def on_meta_later(): return OnMeta(), x
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, *args): raise RuntimeError("mode")
class OpMode(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, *args): raise RuntimeError("mode")
def a_mode(): model = net(); Mode().__enter__(); return model, x
def an_op_mode(): model = net(); OpMode().__enter__(); return model, x
def hook():
    model = net(); model.register_forward_hook(lambda *args: sys.exit(0)); return model, x
def os_exit(): os._exit(0)
class Forgets(Base):
    def after(self, y):
        if "a" in self._modules: del self.a
        return y
def forgets(): return Forgets(), x
def sparse_weight():
    model = net(); model[0].weight = nn.Parameter(model[0].weight.data.to_sparse()); return model, x
class Kind(torch.Tensor): pass
def weight_of_a_class():
    model = net(); model[0].weight = nn.Parameter(model[0].weight.data.as_subclass(Kind)); return model, x
class NamesNothing(Base):
    def named_parameters(self, *args, **kwargs): yield "a", None
def names_nothing(): return NamesNothing(), x
class NamesNumbers(Base):
    def named_buffers(self, *args, **kwargs): yield "a", 3
def names_numbers(): return NamesNumbers(), x
def no_text(): model = Base(); model.add_module("\\udcff", nn.Linear(2, 2)); return model, x
def lines_in_names(): model = Base(); model.add_module("a\\nb", nn.Linear(3, 3)); return model, x
class Given(Base):
    def forward(self, x, other=None): return super().forward(x)
def module_given(): return Given(), x, {"other": nn.Linear(2, 2)}
def observed():
    warnings.simplefilter("ignore")
    model = net().train(); model.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
    return torch.ao.quantization.prepare_qat(model), x
"""
# Understood, in spite of what they do to the process.
RIGHT = """
def a_seed(): torch.manual_seed = fails; return net(), x
def prints():
    print("a"); os.write(1, b"b\\n"); sys.__stdout__.write("c\\n"); return net(), x
class Prints(Base):
    def before(self): print("in forward")
def prints_later(): return Prints(), x
def folder(): os.chdir("/"); return net(), x
def thread():
    def fail(): raise RuntimeError("in a thread")
    other = threading.Thread(target=fail); other.start(); other.join(); return net(), x
def half(): model = net(); torch.set_default_dtype(torch.float16); return model, x
def on_meta(): model = net(); torch.set_default_device("meta"); return model, x
def inference(): torch.inference_mode().__enter__(); return net(), x
def no_gradients(): torch.set_grad_enabled(False); return net(), x
def closes(): sys.stdout.close(); sys.stderr.close(); return net(), x
def no_streams(): sys.stdout = sys.stderr = None; return net(), x
def shallow(): sys.setrecursionlimit(90); return net(), x
def strict(): warnings.simplefilter("error"); return net(), x
def no_words_given(): sys.argv = []; return net(), x
def no_places(): sys.path.clear(); sys.meta_path.clear(); return net(), x
def signs_in_names(): model = Base(); model.add_module("a/b <c>", nn.Linear(3, 3)); return model, x
def child():
    if not os.fork(): os._exit(3)
    os.wait(); return net(), x
def both_return(): os.fork(); return net(), x
def without_us():
    for name in [*sys.modules]:
        if name.startswith("intertwine"): del sys.modules[name]
    return net(), x
def mixed(): model = net(); torch.autocast("cpu", dtype=torch.bfloat16).__enter__(); return model, x
def loud(): warnings.warn("\\x1b[31m"); return net(), x
class Dies(Base):
    def __del__(self): raise ValueError("in __del__")
def dies(): Dies(); return net(), x
def computed():
    first = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    return nn.Sequential(first, nn.ReLU(), nn.Linear(4, 2)), x
"""
# What only a copy, or a file of weights, shows: refused, and understood.
UNSTORABLE = """
class Extra(Base):
    def get_extra_state(self): return {"a": object()}
    def set_extra_state(self, state): pass
def extra(): return Extra(), x
"""
STORABLE = """
def pruned():
    model = net(); nn.utils.prune.l1_unstructured(model[0], "weight", 0.5); return model, x
def old_norm():
    warnings.simplefilter("ignore")
    model = net(); nn.utils.weight_norm(model[0]); return model, x
def small_floats():
    model = Base(); model.register_buffer("c", torch.ones(6).to(torch.float8_e4m3fn)); return model, x
"""


def write_code(folder: Path) -> Path:
    """The file with all of them."""
    path = folder / "code.py"
    path.write_text(HEAD + WRONG + RIGHT + UNSTORABLE + STORABLE)
    return path


def factories(text: str) -> list[str]:
    """The names of the functions at the top level of a source.

    >>> factories("def a(): pass\\nclass B:\\n    def c(self): pass")
    ['a']
    """
    return re.findall(r"^def (\w+)\(\)", text, re.MULTILINE)
