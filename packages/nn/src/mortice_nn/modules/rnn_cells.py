"""The recurrences, as functions of one step and as the modules RNNCell, LSTMCell and GRUCell."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue, ShapeError
from mortice_nn import functional as F
from mortice_nn import init
from mortice_nn.modules.module import Module
from mortice_nn.parameter import Parameter

State = tuple[Tensor, ...]
# (W_ih x + b_ih of this step, state) -> state, whose first tensor is the output
Cell = Callable[[Tensor, State], State]


def _recurrence(w_hh: Tensor, b_hh: Tensor | None) -> Callable[[Tensor, Tensor], Tensor]:
    """gates + W_hh h + b_hh, in one operator."""
    w_t = w_hh.t()

    def add(gates: Tensor, h: Tensor) -> Tensor:
        return mortice.addmm(gates if b_hh is None else gates + b_hh, h, w_t)

    return add


def lstm_cell(w_hh: Tensor, b_hh: Tensor | None) -> Cell:
    """c' = f c + i g, h' = o tanh(c')."""
    recur = _recurrence(w_hh, b_hh)

    def step(gates: Tensor, state: State) -> State:
        h, c = state
        i, f, g, o = recur(gates, h).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    return step


def gru_cell(w_hh: Tensor, b_hh: Tensor | None) -> Cell:
    """h' = (1 - z) n + z h, where the reset gate r acts on W_hn h + b_hn."""

    def step(gates: Tensor, state: State) -> State:
        (h,) = state
        i_r, i_z, i_n = gates.chunk(3, -1)
        h_r, h_z, h_n = F.linear(h, w_hh, b_hh).chunk(3, -1)
        z = (i_z + h_z).sigmoid()
        n = (i_n + (i_r + h_r).sigmoid() * h_n).tanh()
        return (n + z * (h - n),)

    return step


def tanh_cell(w_hh: Tensor, b_hh: Tensor | None) -> Cell:
    """h' = tanh(...)."""
    recur = _recurrence(w_hh, b_hh)
    return lambda gates, state: (recur(gates, state[0]).tanh(),)


def relu_cell(w_hh: Tensor, b_hh: Tensor | None) -> Cell:
    """h' = relu(...)."""
    recur = _recurrence(w_hh, b_hh)
    return lambda gates, state: (recur(gates, state[0]).relu(),)


CELLS: dict[str, Callable[[Tensor, Tensor | None], Cell]] = {
    "LSTM": lstm_cell,
    "GRU": gru_cell,
    "RNN_TANH": tanh_cell,
    "RNN_RELU": relu_cell,
}


def apply_projection(cell: Cell, w_hr: Tensor) -> Cell:
    """``cell`` with its output multiplied by ``w_hr``."""

    def step(gates: Tensor, state: State) -> State:
        h, *rest = cell(gates, state)
        return (F.linear(h, w_hr), *rest)

    return step


class RNNCellBase(Module):
    """One step: input (N, in) or (in), state (N, hidden) or (hidden)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size

        def parameter(*shape: int) -> Parameter:
            return Parameter(mortice.empty(shape, device=device, dtype=dtype))

        self.weight_ih = parameter(gates, input_size)
        self.weight_hh = parameter(gates, hidden_size)
        if bias:
            self.bias_ih = parameter(gates)
            self.bias_hh = parameter(gates)
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """All uniform in +-1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, mode: str, input: Tensor, state: tuple[Tensor, ...] | None) -> State:
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise InvalidValue(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        if input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{name}: input has inconsistent input_size: got {input.shape[-1]}, expected "
                f"{self.input_size}"
            )
        batched = input.ndim == 2
        x = input if batched else input.unsqueeze(0)
        if state is None:
            zeros = mortice.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device)
            state = (zeros, zeros)[: 2 if mode == "LSTM" else 1]
        elif not batched:
            state = tuple(part.unsqueeze(0) for part in state)
        for part in state:
            if tuple(part.shape) != (x.shape[0], self.hidden_size):
                raise ShapeError(
                    f"{name}: expected hidden state of shape {(x.shape[0], self.hidden_size)}, got "
                    f"{tuple(part.shape)}"
                )
        cell = CELLS[mode](self.weight_hh, self.bias_hh)
        state = cell(F.linear(x, self.weight_ih, self.bias_ih), state)
        return state if batched else tuple(part.squeeze(0) for part in state)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"


class RNNCell(RNNCellBase):
    """One step of RNN."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise InvalidValue(f"Unknown nonlinearity {nonlinearity!r}; use 'tanh' or 'relu'")
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        mode = f"RNN_{self.nonlinearity.upper()}"
        return self._step(mode, input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of LSTM: state and result are (h, c)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, ...]:
        return self._step("LSTM", input, hx)


class GRUCell(RNNCellBase):
    """One step of GRU."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step("GRU", input, None if hx is None else (hx,))[0]
