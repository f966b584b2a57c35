"""The finder names the module that broke first, forward and backward, and changes nothing."""

import pytest
import torch

from labsupport.debug import first_nonfinite, watch


class Scale(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def chain(*factors, dtype=torch.float16):
    return torch.nn.Sequential(*(Scale(factor) for factor in factors)).to(dtype)


def test_the_first_module_is_named_not_the_last():
    found = first_nonfinite(chain(100.0, 100.0, 100.0, 0.0), torch.ones(2, 3, dtype=torch.float16))
    assert (found.module, found.kind, found.type) == ("2", "output", "Scale")
    assert (found.infinities, found.nans, found.shape, found.dtype) == (6, 0, (2, 3), "float16")
    assert found.largest_before == 10_000
    assert str(found) == "output of 2 (Scale, float16, shape (2, 3)): 6 inf, 0 NaN"


def test_a_finite_model_gives_none():
    assert first_nonfinite(chain(100.0, 100.0), torch.ones(2, dtype=torch.float16)) is None
    assert first_nonfinite(chain(100.0, 100.0, 100.0).bfloat16(), torch.ones(2, dtype=torch.bfloat16)) is None


def test_the_innermost_module_is_named():
    inner = torch.nn.Sequential(torch.nn.Identity(), Scale(1e6))
    model = torch.nn.ModuleDict({"body": inner})
    model.forward = lambda x: model["body"](x).sum()
    assert first_nonfinite(model, torch.ones(2, dtype=torch.float16)).module == "body.1"


def test_work_outside_any_child_is_the_models_own():
    class Root(torch.nn.Module):
        def forward(self, x):
            return (x / 0,)

    assert first_nonfinite(Root(), torch.ones(2)).module == "model"


def test_bad_inputs_and_parameters_are_told_from_outputs():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    found = first_nonfinite(model, torch.tensor([[float("nan"), 1.0]]))
    assert (found.kind, found.module, found.nans) == ("input", "model", 1)
    with torch.no_grad():
        model[1].weight[0, 0] = float("inf")
    found = first_nonfinite(model, torch.ones(1, 2))
    assert (found.kind, found.module, found.infinities) == ("parameter", "1.weight", 1)


def test_a_gradient_that_breaks_is_named_by_the_output_it_arrived_at():
    class Root(torch.nn.Module):
        def forward(self, x):
            return x.sqrt()

    model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), Root())
    with torch.no_grad():
        model[0].weight.zero_()
    found = first_nonfinite(model, torch.ones(1, 2), loss=torch.sum)
    assert (found.kind, found.module) == ("gradient", "0")  # d sqrt(y)/dy at 0 is infinite
    assert first_nonfinite(model, torch.ones(1, 2)) is None


def test_nothing_changes_and_no_hook_stays():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    before = model(x)
    with watch(model) as seen:
        assert torch.equal(model(x), before)
    assert seen.first is None
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    with pytest.raises(RuntimeError, match="shapes"), watch(model):
        model(torch.ones(2, 4))
    assert all(not m._forward_hooks for m in model.modules())


def test_dicts_and_keyword_inputs_are_watched():
    class Root(torch.nn.Module):
        def forward(self, x, mask=None):
            return {"out": [x + mask]}

    model = Root()
    with watch(model) as seen:
        model(torch.ones(2), mask=torch.tensor([0.0, float("-inf")]))
    assert seen.first.kind == "input"


def test_a_model_is_due():
    with pytest.raises(TypeError, match="Module"), watch(lambda x: x):
        pass
