"""A fit under a limit gives the losses and weights of one without."""

import cpus  # noqa: F401
from models import BATCH, convolutions, fit, lms, tight

callback = lms(limit=tight(), batch_size=BATCH)
assert fit(convolutions, callback) == fit(convolutions)
print(callback.report())
assert max(plan.bytes_out for plan in callback.plans) > 0
