"""A test module of accelerate's own, as it is: gradients with and without synchronisation."""

import torch
from accelerate import PartialState
from accelerate.test_utils.scripts import test_sync
from numbers_of import told

state = PartialState(cpu=True)
told([torch.tensor([1.0, state.num_processes])])  # it ends the process group
test_sync.main()
