# Forwards to the package that provides it, for type checkers; the import system does the same.
from mortice_nn.parallel import *
