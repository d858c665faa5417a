"""Mixed precision training; users import it as ``mortice.amp``.

``autocast`` is core's, because the dispatcher works it.
"""

from mortice import autocast
from mortice_nn.amp.autocast_mode import custom_bwd, custom_fwd, is_autocast_available
from mortice_nn.amp.grad_scaler import GradScaler, OptState

__all__ = [
    "GradScaler",
    "OptState",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "is_autocast_available",
]
