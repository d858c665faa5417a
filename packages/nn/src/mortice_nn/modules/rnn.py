"""RNN, LSTM and GRU over whole sequences; see ``rnn_cells`` for the recurrences."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import ArgumentError, InvalidValue, ShapeError
from mortice_nn import functional as F
from mortice_nn import init
from mortice_nn.modules.module import Module
from mortice_nn.modules.rnn_cells import CELLS, Cell, State, apply_projection
from mortice_nn.parameter import Parameter
from mortice_nn.utils.rnn import PackedSequence

# mode -> (gates, tensors of state)
MODES = {"LSTM": (4, 2), "GRU": (3, 1), "RNN_TANH": (1, 1), "RNN_RELU": (1, 1)}


class RNNBase(Module):
    """Layers of a recurrence, optionally in both directions.

    Input (L, N, in), (N, L, in) if ``batch_first``, (L, in) unbatched, or a PackedSequence.
    Parameters of layer k: weight_ih_lk (gates * hidden, in), weight_hh_lk, bias_ih_lk, bias_hh_lk,
    with the suffix _reverse for the other direction.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_sizes(mode, hidden_size, num_layers, dropout, proj_size)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        gates = MODES[mode][0] * hidden_size
        real = proj_size or hidden_size
        self._flat_weights_names: list[str] = []
        self._all_weights: list[list[str]] = []
        for layer, suffix in self._directions():
            width = input_size if layer == 0 else real * (2 if bidirectional else 1)
            shapes: dict[str, tuple[int, ...]] = {
                f"weight_ih_{suffix}": (gates, width),
                f"weight_hh_{suffix}": (gates, real),
            }
            if bias:
                shapes[f"bias_ih_{suffix}"] = (gates,)
                shapes[f"bias_hh_{suffix}"] = (gates,)
            if proj_size:
                shapes[f"weight_hr_{suffix}"] = (proj_size, hidden_size)
            for name, shape in shapes.items():
                setattr(self, name, Parameter(mortice.empty(shape, device=device, dtype=dtype)))
            self._flat_weights_names += shapes
            self._all_weights.append(list(shapes))
        self.reset_parameters()

    def _directions(self) -> Iterator[tuple[int, str]]:
        """Layer and parameter suffix, in the order of the state."""
        for layer in range(self.num_layers):
            yield layer, f"l{layer}"
            if self.bidirectional:
                yield layer, f"l{layer}_reverse"

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Exists for programs written for CUDA's fused kernels; there is nothing to flatten."""

    def reset_parameters(self) -> None:
        """All uniform in +-1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def forward(self, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.ndim not in (2, 3):
            raise InvalidValue(
                f"{self.mode}: Expected input to be 2D or 3D, got {input.ndim}D instead"
            )
        batched = input.ndim == 3
        if not batched:
            x = input.unsqueeze(1)
        elif self.batch_first:
            x = input.transpose(0, 1)
        else:
            x = input
        self._check_width(x)
        state = self._state(hx, x, x.shape[1], batched)
        output, final = self._layers(x, state, None)
        if batched and self.batch_first:
            output = output.transpose(0, 1)
        elif not batched:
            output = output.squeeze(1)
            final = tuple(part.squeeze(1) for part in final)
        return output, _plain(final)

    def _forward_packed(self, input: PackedSequence, hx: Any) -> Any:
        self._check_width(input.data)
        sizes: list[int] = [int(size) for size in input.batch_sizes.tolist()]
        state = self._state(hx, input.data, sizes[0], True)
        if hx is not None and input.sorted_indices is not None:
            state = tuple(part.index_select(1, input.sorted_indices) for part in state)
        output, final = self._layers(input.data, state, sizes)
        if input.unsorted_indices is not None:
            final = tuple(part.index_select(1, input.unsorted_indices) for part in final)
        packed = PackedSequence(
            output, input.batch_sizes, input.sorted_indices, input.unsorted_indices
        )
        return packed, _plain(final)

    def _check_width(self, x: Tensor) -> None:
        if x.shape[-1] != self.input_size:
            raise ShapeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                f"{x.shape[-1]}"
            )

    def _state(self, hx: Any, x: Tensor, n: int, batched: bool) -> State:
        """The initial state as tensors (layers * directions, N, size), checked."""
        count = MODES[self.mode][1]
        lead = self.num_layers * (2 if self.bidirectional else 1)
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[:count]
        if hx is None:
            return tuple(mortice.zeros(lead, n, w, dtype=x.dtype, device=x.device) for w in widths)
        parts = tuple(hx) if count > 1 else (hx,)
        names = ("hx[0]", "hx[1]") if count > 1 else ("hx",)
        if len(parts) != count:
            raise ArgumentError(f"{self.mode} expects hx = (h_0, c_0), found {len(parts)} tensors")
        checked: list[Tensor] = []
        for part, width, name in zip(parts, widths, names, strict=True):
            part = part if batched else part.unsqueeze(1)
            if tuple(part.shape) != (lead, n, width):
                raise ShapeError(
                    f"Expected {name} of shape {(lead, n, width)} (layers * directions, batch, "
                    f"size), got {tuple(part.shape)}"
                )
            checked.append(part)
        return tuple(checked)

    def _layers(
        self, x: Tensor, state: State, sizes: list[int] | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        directions = 2 if self.bidirectional else 1
        finals: list[State] = []
        for layer in range(self.num_layers):
            outputs: list[Tensor] = []
            for direction in range(directions):
                number = layer * directions + direction
                names = self._all_weights[number]
                weights = [getattr(self, name) for name in names]
                start = tuple(part[number] for part in state)
                out, final = self._direction(x, start, weights, sizes, direction == 1)
                outputs.append(out)
                finals.append(final)
            x = outputs[0] if directions == 1 else mortice.cat(outputs, -1)
            if self.dropout and self.training and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, True)
        return x, tuple(mortice.stack(parts) for parts in zip(*finals, strict=True))

    def _direction(
        self,
        x: Tensor,
        state: State,
        weights: list[Tensor],
        sizes: list[int] | None,
        backwards: bool,
    ) -> tuple[Tensor, State]:
        w_hr = weights.pop() if self.proj_size else None
        w_ih, w_hh = weights[:2]
        b_ih, b_hh = weights[2:] if self.bias else (None, None)
        if self.mode != "GRU" and b_ih is not None and b_hh is not None:
            # GRU's reset gate acts on W_hn h + b_hn, the others only add: once, not every step
            b_ih, b_hh = b_ih + b_hh, None
        cell = CELLS[self.mode](w_hh, b_hh)
        if w_hr is not None:
            cell = apply_projection(cell, w_hr)
        # One product for all steps; only the recurrent part has to run step by step.
        gates = F.linear(x, w_ih, b_ih)
        steps = gates.unbind(0) if sizes is None else gates.split(sizes)
        scan = _scan_backwards if backwards else _scan
        outputs, final = scan(cell, list(steps), state)
        joined = mortice.stack(outputs) if sizes is None else mortice.cat(outputs)
        return joined, final

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        defaults = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0,
            "bidirectional": False,
        }
        for name, default in defaults.items():
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text


def _plain(state: State) -> Any:
    """(h, c) of an LSTM, h alone of the others."""
    return state[0] if len(state) == 1 else state


def _scan(cell: Cell, steps: list[Tensor], state: State) -> tuple[list[Tensor], State]:
    """Forward in time. Packed steps shrink: rows that end keep the state they ended with."""
    outputs: list[Tensor] = []
    ended: list[State] = []
    for gates in steps:
        n = gates.shape[0]
        if n < state[0].shape[0]:
            ended.append(tuple(part[n:] for part in state))
            state = tuple(part[:n] for part in state)
        state = cell(gates, state)
        outputs.append(state[0])
    if ended:
        ended.append(state)
        state = tuple(mortice.cat(parts[::-1]) for parts in zip(*ended, strict=True))
    return outputs, state


def _scan_backwards(cell: Cell, steps: list[Tensor], initial: State) -> tuple[list[Tensor], State]:
    """Backward in time. Packed steps grow: rows that join start with their initial state."""
    outputs: list[Tensor] = []
    state = tuple(part[: steps[-1].shape[0]] for part in initial)
    for gates in reversed(steps):
        have, n = state[0].shape[0], gates.shape[0]
        if n > have:
            pairs = zip(state, initial, strict=True)
            state = tuple(mortice.cat([part, start[have:n]]) for part, start in pairs)
        state = cell(gates, state)
        outputs.append(state[0])
    return outputs[::-1], state


def _check_sizes(
    mode: str, hidden_size: Any, num_layers: int, dropout: Any, proj_size: int
) -> None:
    if (
        not isinstance(dropout, numbers.Real)
        or isinstance(dropout, bool)
        or not 0 <= float(dropout) <= 1
    ):
        raise InvalidValue(
            f"dropout should be a number in range [0, 1], the probability of an element being "
            f"zeroed; found {dropout!r}"
        )
    if dropout and num_layers == 1:
        import warnings

        warnings.warn(
            f"dropout acts between recurrent layers, so dropout={dropout} with num_layers=1 does "
            "nothing",
            stacklevel=4,
        )
    if not isinstance(hidden_size, int):
        raise ArgumentError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
    if hidden_size <= 0:
        raise InvalidValue("hidden_size must be greater than zero")
    if num_layers <= 0:
        raise InvalidValue("num_layers must be greater than zero")
    if proj_size < 0 or proj_size >= hidden_size:
        raise InvalidValue(
            f"proj_size must be from 0 (none) to less than hidden_size {hidden_size}, found "
            f"{proj_size}"
        )
    if proj_size and mode != "LSTM":
        raise InvalidValue("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """h' = tanh or relu(W_ih x + b_ih + W_hh h + b_hh) (Elman 1990)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise InvalidValue(
                f"Unknown nonlinearity {nonlinearity!r}. Select from 'tanh' or 'relu'."
            )
        super().__init__(
            f"RNN_{nonlinearity.upper()}",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
            device,
            dtype,
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), gates in the order i, f, g, o.

    The state is (h, c); with ``proj_size`` h is projected by weight_hr (Sak et al. 2014).
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al. 2014), gates in the order r, z, n."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
            device,
            dtype,
        )
