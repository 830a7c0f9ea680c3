"""A model trained under LMS on the simulated device: needs nothing but the package."""

import lms
from models import Step, batch, compare, equal, mlp, mlp_step, train
from torch import Tensor, nn

for share in (0.9, 0.5):
    plain, under = compare(mlp_step, share)
    report = under.report
    assert report is not None
    assert report.moved > 0
    assert report.missed == 0
    assert abs(report.predicted - report.measured) < 1e-3 * report.measured

# On a bus too slow for all that leaves, some layers are computed again instead.
slow = lms.Speed(arithmetic=2e12, memory=200e9, d2h=10e9, h2d=10e9, launch=1e-6)


def layered() -> tuple[nn.Module, Step]:
    parts = list(mlp(4))
    model = nn.Sequential(*(nn.Sequential(*parts[n : n + 5]) for n in range(0, len(parts), 5)))

    def step() -> Tensor:
        loss = model(batch()).square().mean()
        loss.backward()
        return loss.detach()

    return model, step


plain = train(*layered(), steps=7)
model, step = layered()
lms.recompute(model)
limit = int(0.6 * max(plain.peaks))
under = train(model, step, limit=limit, steps=7, device=lms.SimulatedDevice("64GiB", slow))
assert equal(plain, under)
assert max(under.peaks) <= limit
assert under.report is not None
assert under.report.again
print("lms", lms.__version__, "all well")
