"""The model: what each prediction may depend on, and that packing changes nothing."""

from __future__ import annotations

import pytest
import torch

from gear.train.models.attention import Packed, causal_attention, obstacle_to_varlen
from gear.train.models.decision_transformer import DecisionTransformer

B, L, OBS, ACTIONS = 3, 6, 4, 2
TOKENS = 3  # of a step


def make(discrete=False, **changed):
    torch.manual_seed(1)
    shape = {"obs_shape": (OBS,), "num_actions": 5 if discrete else 0, "action_dim": ACTIONS}
    sizes = {"width": 16, "layers": 2, "heads": 4, "max_steps": 50}
    return DecisionTransformer(**{**shape, **sizes, **changed})


def inputs(discrete=False, seed=0):
    rng = torch.Generator().manual_seed(seed)
    action = torch.rand(B, L, ACTIONS, generator=rng) * 2 - 1
    if discrete:
        action = torch.randint(5, (B, L), generator=rng)
    return {
        "return_to_go": torch.randn(B, L, generator=rng),
        "obs": torch.randn(B, L, OBS, generator=rng),
        "action": action,
        "step": torch.randint(50, (B, L), generator=rng),
    }


@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("discrete", [False, True])
def test_a_prediction_depends_on_the_past_alone(discrete, returns):
    """Step 3: on returns and observations up to 3 and on actions up to 2, on nothing later; on no
    return at all in a model without returns."""
    model, given = make(discrete, returns=returns), inputs(discrete)
    before = model(**given)
    seen = {"return_to_go": 4 if returns else 0, "obs": 4, "action": 3, "step": 4}
    for name, first_unseen in seen.items():
        for at in range(L):
            changed = {**given, name: given[name].clone()}
            row = changed[name][0, at]
            changed[name][0, at] = (row + 1) % 5 if row.dtype == torch.int64 else row + 0.5
            after = model(**changed)
            assert torch.equal(after[1:], before[1:])  # other windows
            if at >= first_unseen:
                assert torch.equal(after[0, :4], before[0, :4]), name
            else:
                assert not torch.allclose(after[0, 3], before[0, 3]), name


@pytest.mark.parametrize("discrete", [False, True])
def test_packed_windows_give_what_padded_ones_do(discrete):
    model, given = make(discrete), inputs(discrete)
    lengths = torch.tensor([6, 1, 4])
    there = torch.arange(L) < lengths[:, None]
    cu = torch.cat([torch.zeros(1), lengths.cumsum(0)]).int()
    packed = Packed.of(cu * TOKENS, int(cu[-1]) * TOKENS, L * TOKENS)
    padded = model(**given)[there]
    rows = model(**{name: value[there] for name, value in given.items()}, packed=packed)
    torch.testing.assert_close(rows, padded, rtol=1e-5, atol=1e-6)


def test_gradients_of_packed_windows_are_those_of_padded_ones():
    model, given = make(), inputs()
    lengths = torch.tensor([2, 6, 3])
    there = torch.arange(L) < lengths[:, None]
    cu = torch.cat([torch.zeros(1), lengths.cumsum(0)]).int()
    packed = Packed.of(cu * TOKENS, int(cu[-1]) * TOKENS, L * TOKENS)
    found = []
    for predicted in (
        model(**given)[there],
        model(**{name: value[there] for name, value in given.items()}, packed=packed),
    ):
        model.zero_grad()
        predicted.square().sum().backward()
        found.append([p.grad.clone() for p in model.parameters()])
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def test_attention_against_a_block_diagonal_mask():
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(9, 2, 8, generator=rng) for _ in range(3))
    cu = torch.tensor([0, 4, 5, 9], dtype=torch.int32)
    window = torch.tensor([0] * 4 + [1] + [2] * 4)
    mask = (window[:, None] == window) & torch.ones(9, 9, dtype=torch.bool).tril()
    scores = torch.einsum("qhs,khs->hqk", q, k) / 8**0.5
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    expected = torch.einsum("hqk,khs->qhs", weights, v)
    found = causal_attention(q, k, v, Packed.of(cu, 9, 5))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_recomputing_activations_changes_no_gradient():
    given, found = inputs(), []
    for recompute in (False, True):
        model = make(recompute=recompute)
        model(**given).square().sum().backward()
        found.append([p.grad for p in model.parameters()])
    assert all(torch.equal(left, right) for left, right in zip(*found, strict=True))


def test_precision_is_the_models_own():
    """An engine that calls the model switches off the autocast that it finds."""
    given = inputs()
    whole, half = make(), make(precision=torch.bfloat16)
    with torch.autocast("cpu", enabled=False):
        found = half(**given)
    assert found.dtype == torch.float32
    assert not torch.equal(found, whole(**given))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(found, whole._predicted(**given, packed=None).float())


def test_frames():
    model = make(obs_shape=(84, 84), discrete=True)
    given = inputs(discrete=True)
    given["obs"] = torch.randint(256, (B, L, 84, 84), dtype=torch.uint8)
    assert model(**given).shape == (B, L, 5)


def test_steps_beyond_the_last_place_share_it():
    model, given = make(), inputs()
    at_end = {**given, "step": torch.full((B, L), 49)}
    beyond = {**given, "step": given["step"] + 60}
    assert torch.equal(model(**at_end), model(**beyond))


def test_weight_decay_leaves_biases_norms_and_embeddings_alone():
    model = make(discrete=True)
    alone = {id(p) for p in model.undecayed()}
    decayed = {name for name, p in model.named_parameters() if id(p) not in alone}
    assert {"embed_obs.weight", "blocks.0.qkv.weight", "head.weight"} <= decayed
    assert all(name.endswith("weight") and "norm" not in name for name in decayed)
    assert not {"embed_step.weight", "embed_action.weight"} & decayed


def test_why_there_is_no_varlen_kernel():
    assert "for GPUs" in obstacle_to_varlen(torch.device("cpu"), torch.bfloat16)
    assert "takes bfloat16" in obstacle_to_varlen(torch.device("cuda"), torch.float32)
