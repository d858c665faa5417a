"""Recurrent layers, packed sequences, attention, initial values and gradient clipping."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mortice
from mortice import nn
from mortice.nn.utils import rnn

RNG = np.random.default_rng(1)


def rand(*shape: int):
    return mortice.from_numpy(RNG.standard_normal(shape).astype(np.float32))


def same(a, b, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("layer", "cell"),
    [
        (nn.LSTM, nn.LSTMCell),
        (nn.GRU, nn.GRUCell),
        (nn.RNN, nn.RNNCell),
    ],
)
def test_a_layer_is_its_cell_step_by_step(layer: type, cell: type) -> None:
    whole, step = layer(3, 4), cell(3, 4)
    step.load_state_dict({k.removesuffix("_l0"): v for k, v in whole.state_dict().items()})
    x = rand(6, 2, 3)
    out, final = whole(x)
    state = None
    for i in range(6):
        state = step(x[i], state)
        h = state[0] if isinstance(state, tuple) else state
        same(out[i], h)
    last = final[0] if isinstance(final, tuple) else final
    same(last[0], h)


def test_lstm_formula() -> None:
    net = nn.LSTMCell(2, 3)
    x, h, c = rand(1, 2), rand(1, 3), rand(1, 3)
    weights = {k: v.numpy() for k, v in net.state_dict().items()}
    gates = (
        x.numpy() @ weights["weight_ih"].T
        + weights["bias_ih"]
        + h.numpy() @ weights["weight_hh"].T
        + weights["bias_hh"]
    )
    i, f, g, o = np.split(gates, 4, 1)
    s = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    expected_c = s(f) * c.numpy() + s(i) * np.tanh(g)
    got_h, got_c = net(x, (h, c))
    np.testing.assert_allclose(got_c.detach().numpy(), expected_c, rtol=1e-5)
    np.testing.assert_allclose(
        got_h.detach().numpy(), s(o) * np.tanh(expected_c), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed_sequences_equal_each_alone(layer: type, enforce_sorted: bool) -> None:
    net = layer(3, 4, num_layers=2, bidirectional=True)
    lengths = [5, 3, 1] if enforce_sorted else [3, 5, 1]
    sequences = [rand(n, 3) for n in lengths]
    packed = rnn.pack_sequence(sequences, enforce_sorted=enforce_sorted)
    out, final = net(packed)
    padded, sizes = rnn.pad_packed_sequence(out)
    assert sizes.tolist() == lengths
    final = final[0] if isinstance(final, tuple) else final
    for i, sequence in enumerate(sequences):
        alone, state = net(sequence)
        state = state[0] if isinstance(state, tuple) else state
        same(padded[: lengths[i], i], alone)
        same(final[:, i], state)
        assert (padded[lengths[i] :, i] == 0).all()


def test_packing_and_back() -> None:
    sequences = [rand(n, 2) for n in (2, 4, 3)]
    packed = rnn.pack_sequence(sequences, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 3, 2, 1]
    for a, b in zip(rnn.unpack_sequence(packed), sequences, strict=True):
        same(a, b)
    padded = rnn.pad_sequence(sequences, batch_first=True, padding_value=-1, padding_side="left")
    assert tuple(padded.shape) == (3, 4, 2)
    assert (padded[0, :2] == -1).all()
    with pytest.raises(RuntimeError, match="pass enforce_sorted=False"):
        rnn.pack_sequence(sequences)
    with pytest.raises(RuntimeError, match="greater than 0"):
        rnn.pack_padded_sequence(padded, [1, 0, 2, 1])


def test_recurrent_errors_name_the_shapes() -> None:
    net = nn.LSTM(3, 4)
    with pytest.raises(RuntimeError, match="Expected 3, got 2"):
        net(rand(5, 1, 2))
    with pytest.raises(RuntimeError, match=r"Expected hx\[1\] of shape \(1, 1, 4\)"):
        net(rand(5, 1, 3), (rand(1, 1, 4), rand(1, 2, 4)))
    with pytest.raises(ValueError, match="2D or 3D, got 1D"):
        net(rand(3))
    with pytest.raises(ValueError, match="only supported for LSTM"):
        nn.RNNBase("GRU", 2, 3, proj_size=1)
    with pytest.warns(UserWarning, match="num_layers=1"):
        nn.GRU(2, 3, dropout=0.5)


def test_dropout_between_layers_only_in_training() -> None:
    net = nn.GRU(3, 8, num_layers=2, dropout=0.9)
    x = rand(4, 2, 3)
    assert not np.allclose(net(x)[0].detach().numpy(), net(x)[0].detach().numpy())
    net.eval()
    same(net(x)[0], net(x)[0])


def test_attention_masks() -> None:
    net = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = rand(2, 5, 8)
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    out, weights = net(x, x, x, attn_mask=causal)
    assert (weights.triu(1) == 0).all()
    boolean = mortice.ones(5, 5, dtype=mortice.bool).triu(1)
    same(out, net(x, x, x, attn_mask=boolean)[0])
    same(out, net(x, x, x, attn_mask=causal, need_weights=False)[0])
    padding = mortice.tensor([[False] * 5, [False, False, False, True, True]])
    masked, weights = net(x, x, x, key_padding_mask=padding)
    assert (weights[1, :, 3:] == 0).all()
    short = x[1:, :3]
    same(masked[1:, :3], net(short, short, short)[0])
    with pytest.raises(RuntimeError, match=r"is \(4, 5\), but should be \(5, 5\)"):
        net(x, x, x, attn_mask=causal[:4])
    with pytest.raises(ValueError, match="divisible by num_heads, got 8 and 3"):
        nn.MultiheadAttention(8, 3)


def test_transformer_learns_from_no_later_position() -> None:
    net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    x = rand(1, 4, 8).requires_grad_()
    # weighted: the plain sum of a normalised row is constant
    (net(x, src_mask=mask)[0, 1] * mortice.arange(8)).sum().backward()
    assert (x.grad[0, 2:] == 0).all()
    assert (x.grad[0, :2] != 0).any()


# -- init ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fill", "std"),
    [
        (lambda w: nn.init.uniform_(w, -1, 1), 1 / math.sqrt(3)),
        (lambda w: nn.init.normal_(w, 0, 2), 2),
        (nn.init.xavier_uniform_, math.sqrt(2 / 500)),
        (lambda w: nn.init.xavier_normal_(w, gain=2), 2 * math.sqrt(2 / 500)),
        (lambda w: nn.init.kaiming_uniform_(w, nonlinearity="relu"), math.sqrt(2 / 300)),
        (
            lambda w: nn.init.kaiming_normal_(w, mode="fan_out", nonlinearity="linear"),
            math.sqrt(1 / 200),
        ),
        (nn.init.trunc_normal_, 0.8796),
    ],
)
def test_spread_of_initial_values(fill, std: float) -> None:
    mortice.manual_seed(0)
    w = fill(mortice.empty(200, 300))
    # 60,000 values: the standard error of the standard deviation is below 0.3 %
    assert float(w.numpy().std()) == pytest.approx(std, rel=0.02)
    assert abs(float(w.numpy().mean())) < 0.02 * std


def test_special_initial_values() -> None:
    w = nn.init.orthogonal_(mortice.empty(4, 6), gain=2.0)
    np.testing.assert_allclose((w @ w.T).numpy(), 4 * np.eye(4), atol=1e-5)
    assert nn.init.eye_(mortice.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    conv = nn.init.dirac_(mortice.empty(4, 2, 3), groups=2)
    x = rand(1, 4, 5)
    same(nn.functional.conv1d(x, conv, padding=1, groups=2), x)
    assert (nn.init.sparse_(mortice.empty(10, 3), 0.3) == 0).sum(0).tolist() == [3, 3, 3]
    assert nn.init.calculate_gain("leaky_relu", 0.2) == pytest.approx(math.sqrt(2 / 1.04))
    with pytest.raises(ValueError, match="Unsupported nonlinearity 'swish'"):
        nn.init.calculate_gain("swish")
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        nn.init.xavier_uniform_(mortice.empty(3))


def test_same_seed_same_model() -> None:
    def weights():
        mortice.manual_seed(5)
        return nn.Linear(4, 4).weight

    assert (weights() == weights()).all()


# -- utils ---------------------------------------------------------------------------------------


def with_gradients() -> list[nn.Parameter]:
    params = [
        nn.Parameter(mortice.zeros(2)),
        nn.Parameter(mortice.zeros(1)),
        nn.Parameter(mortice.zeros(3)),
    ]
    params[0].grad = mortice.tensor([3.0, 0.0])
    params[1].grad = mortice.tensor([-4.0])
    return params


def test_clip_grad_norm() -> None:
    params = with_gradients()
    assert nn.utils.clip_grad_norm_(params, 1.0).item() == pytest.approx(5.0)
    np.testing.assert_allclose(params[0].grad.numpy(), [0.6, 0], rtol=1e-5)
    assert nn.utils.clip_grad_norm_(params, 10.0).item() == pytest.approx(1.0, rel=1e-5)
    np.testing.assert_allclose(params[1].grad.numpy(), [-0.8], rtol=1e-5)
    assert nn.utils.get_total_norm([p.grad for p in params[:2]], float("inf")).item() == (
        pytest.approx(0.8, rel=1e-5)
    )
    params[0].grad[0] = float("nan")
    with pytest.raises(RuntimeError, match="pass error_if_nonfinite=False"):
        nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)


def test_clip_grad_value_and_vectors() -> None:
    params = with_gradients()
    nn.utils.clip_grad_value_(params, 2.0)
    assert params[0].grad.tolist() == [2, 0]
    assert params[1].grad.tolist() == [-2]
    vector = nn.utils.parameters_to_vector(params)
    assert tuple(vector.shape) == (6,)
    nn.utils.vector_to_parameters(mortice.arange(6, dtype=mortice.float32), params)
    assert params[2].tolist() == [3, 4, 5]
    with pytest.raises(RuntimeError, match="needs 6 elements, found 2"):
        nn.utils.vector_to_parameters(mortice.zeros(2), params)
