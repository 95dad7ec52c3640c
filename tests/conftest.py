import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small tensors are faster on one thread, and the suite may share its two cores with other work."""
    torch.set_num_threads(1)
