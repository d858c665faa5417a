"""What tests of tensors, gradients and operators need; users import it as ``mortice.testing``.

``mortice.testing`` is this module. Names, arguments and defaults are those of ``torch.testing``
and ``torch.autograd.gradcheck``.
"""

from mortice_testing._comparison import assert_close
from mortice_testing._gradcheck import GradcheckError, gradcheck, gradgradcheck
from mortice_testing._opcheck import OpCheckError, opcheck
from mortice_testing._samples import make_tensor
from mortice_testing._version import __version__ as __version__

__all__ = [
    "GradcheckError",
    "OpCheckError",
    "assert_close",
    "gradcheck",
    "gradgradcheck",
    "make_tensor",
    "opcheck",
]
