# What ``mortice.config`` is, for type checkers; at run time it is that very module.
from mortice._base.config import *
