"""A model trained under LMS on the simulated device: needs nothing but the package."""

import lms
from models import compare, mlp_step

for share in (0.9, 0.7, 0.5):
    plain, under = compare(mlp_step, share)
    report = under.report
    assert report is not None
    assert report.moved > 0
    assert report.missed == 0
    assert abs(report.predicted - report.measured) < 1e-3 * report.measured
print("lms", lms.__version__, "all well")
