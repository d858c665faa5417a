# Forwards to the package that provides it, for type checkers; the import system does the same.
from mortice_nn.optim import *
from mortice_nn.optim import lr_scheduler as lr_scheduler
