"""Random models: the bits of in-core and the limit kept, or an error that names the shortfall."""

from collections.abc import Callable

import lms
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import Step, equal, train
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Layer = Callable[[Tensor], Tensor]

#: Operations on (rows, 32), by what they save: inputs, outputs, views, masks, nothing.
PLAIN: dict[str, Layer] = {
    "exp": lambda x: x.clamp(max=1).exp(),
    "tanh": torch.tanh,
    "square": lambda x: x * x,
    "view": lambda x: x.contiguous().view(-1, 64).sin().view(-1, 32),
    "transpose": lambda x: x.t().contiguous().t() * 0.5,
    "relu in place": lambda x: (x + 1).relu_(),
    "softmax": lambda x: x.softmax(-1),
    "slice and join": lambda x: torch.cat([x[:, 16:].cos(), x[:, :16]], 1),
    "large": lambda x: (x[:, :, None] * x[:, None, :8]).amax(-1),
    "detour": lambda x: x + x.detach().sigmoid() * x,
    "sort": lambda x: x.sort(dim=0).values,
}


class Net(nn.Module):
    """Some operations, linear layers and checkpointed parts, with connections across."""

    def __init__(self, names: list[str], across: list[int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.names, self.across = names, across
        self.linear = nn.ModuleList(nn.Linear(32, 32) for _ in names)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 32) to (rows, 32)."""
        seen = [x]
        for name, linear, source in zip(self.names, self.linear, self.across, strict=True):
            if name == "linear":
                x = linear(x)
            elif name == "checkpoint":
                x = checkpoint(lambda y, f=linear: f(y).tanh() * y, x, use_reentrant=False)
            elif name == "across":
                x = linear(x) * seen[source % len(seen)]
            else:
                x = PLAIN[name](x)
            x = x / (x.detach().abs().amax() + 1)
            seen.append(x)
        return self.linear[0](x)


LAYERS = st.sampled_from([*PLAIN, "linear", "linear", "checkpoint", "across"])


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    layers=st.lists(st.tuples(LAYERS, st.integers(0, 20)), min_size=2, max_size=14),
    share=st.floats(0.35, 1.1),
    rows=st.lists(st.sampled_from([128, 256, 512]), min_size=1, max_size=2),
    times=st.integers(1, 2),
)
def test_random_models(
    layers: list[tuple[str, int]], share: float, rows: list[int], times: int
) -> None:
    def make() -> tuple[nn.Module, Step]:
        net = Net([name for name, _ in layers], [source for _, source in layers])
        made = [torch.randn(n, 32, generator=torch.Generator().manual_seed(n)) for n in rows]
        data = iter(made * 20)

        def step() -> Tensor:
            total = torch.zeros(())
            for _ in range(times):
                loss = net(next(data)).square().mean()
                loss.backward()
                total += loss.detach()
            return total

        return net, step

    plain = train(*make(), steps=6)
    limit = int(share * max(plain.peaks))
    try:
        under = train(*make(), limit=limit, steps=6)
    except lms.NoPlanError as error:
        assert 0 < error.shortfall <= max(plain.peaks)  # noqa: PT017
        return
    assert equal(plain, under)
    assert max(under.peaks) <= limit
