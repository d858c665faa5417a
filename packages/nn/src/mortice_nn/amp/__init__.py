"""Mixed precision training; users import it as ``mortice.amp``."""

from mortice_nn.amp.grad_scaler import GradScaler

__all__ = ["GradScaler"]
