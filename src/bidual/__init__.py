from bidual.arrangements import *
