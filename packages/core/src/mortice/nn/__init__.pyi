# Forwards to the package that provides it, for type checkers; the import system does the same.
from mortice_nn import *
from mortice_nn import functional as functional
from mortice_nn import init as init
from mortice_nn import modules as modules
from mortice_nn import parameter as parameter
from mortice_nn import utils as utils
