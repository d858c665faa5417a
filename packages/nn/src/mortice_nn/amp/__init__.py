"""Mixed precision training; users import it as ``mortice.amp``."""

from mortice import autocast, get_autocast_dtype, is_autocast_enabled
from mortice_nn.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "get_autocast_dtype", "is_autocast_enabled"]
