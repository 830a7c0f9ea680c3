"""Compiled graphs move activations and give the same gradients."""

import shutil

import lms
import pytest
import torch
from models import batch, mlp
from torch._functorch import config

#: Inductor compiles C++.
BACKENDS = [
    "aot_eager",
    pytest.param(
        "inductor", marks=pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
    ),
]


def gradients(
    wanted: int | None, backend: str = "aot_eager"
) -> tuple[list[torch.Tensor], list[int]]:
    torch._dynamo.reset()
    model, marked = mlp(3), []
    step = torch.compile(lambda data: model(data).square().mean(), backend=backend)
    if wanted is None:
        step(batch()).backward()
    else:
        with lms.offload_compiled(wanted, smallest=1024) as marked:
            step(batch()).backward()
    return [p.grad for p in model.parameters()], marked


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_compiled_graphs(backend: str) -> None:
    plain, _ = gradients(None, backend)
    moved, marked = gradients(1 << 20, backend)
    assert len(marked) == 1
    assert marked[0] >= 1 << 20
    for a, b in zip(plain, moved, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
def test_a_compiled_graph_from_another_run_is_not_taken() -> None:
    """Torch keeps compiled graphs on disk, and would take one that moves less."""
    counts = [gradients(wanted, "inductor")[1] for wanted in (1 << 20, 1 << 20, 1 << 21)]
    assert counts[0] == counts[1]
    assert counts[2][0] >= 1 << 21 > counts[0][0]


def test_no_more_is_marked_than_there_is() -> None:
    _, marked = gradients(1 << 40)
    assert 1 << 20 < marked[0] < 1 << 26


def test_the_graph_copies_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._functorch._activation_offloading import activation_offloading

    names: list[str] = []
    real = activation_offloading.offload_activation_fw

    def spy(graph: torch.fx.Graph) -> None:
        real(graph)
        names.extend(node.name for node in graph.nodes)

    monkeypatch.setattr(activation_offloading, "offload_activation_fw", spy)
    gradients(1 << 20)
    assert any(name.startswith("cpu_offload_") for name in names)


def test_only_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "joint_custom_pass", lambda graph, _: graph)
    with pytest.raises(lms.LMSError, match="joint_custom_pass is set already"):
        with lms.offload_compiled("1MiB"):
            pass


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_compose_with_compiled_parts(backend: str) -> None:
    from models import Step, compare

    def make() -> tuple[torch.nn.Module, Step]:
        torch._dynamo.reset()
        model, data = mlp(4), batch()
        parts = [torch.compile(model[n : n + 5], backend=backend) for n in range(0, 20, 5)]

        def step() -> torch.Tensor:
            hidden = data
            for part in parts:
                hidden = part(hidden)
            loss = hidden.square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    compare(make, 0.9)
