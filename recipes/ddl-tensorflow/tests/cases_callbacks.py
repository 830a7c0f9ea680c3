"""What the callbacks do, and what `fit` does with callbacks."""

import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import ddl
import keras
import numpy as np
from harness import equal_on_all_ranks
from ranked import RANK, SIZE, case
from training import BATCH, STEPS, compiled, data, fit, net


@case
def callbacks_leave_the_end_of_a_batch_alone() -> None:
    """Where one has an on_train_batch_end, Keras dispatches none asynchronously."""
    from keras.src.utils import is_default

    for callback in (ddl.DDLCallback(), ddl.DDLGlobalVariablesCallback()):
        for stage in ("", "train_", "test_", "predict_"):
            assert is_default(getattr(callback, f"on_{stage}batch_end")), stage


class Builds(keras.callbacks.Callback):
    """Lets a model seem not to be built when the training begins."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.model.built = False

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.model.built = True


@case
def variables_are_given_out_after_the_first_batch() -> None:
    """Also when an epoch has no second one, and again in the next fit."""
    x, y = data()
    for steps in (1, STEPS):
        model = compiled(net(seed=700 + RANK), "sgd")
        for seed in (800, 900):
            model.set_weights(net(seed=seed + RANK).get_weights())
            model.fit(
                x[:steps, RANK].reshape(-1, 5),
                y[:steps, RANK].ravel(),
                batch_size=BATCH,
                verbose=0,
                callbacks=[Builds()],
            )
            equal_on_all_ranks(model.get_weights())


@case
def fit_with_a_list_of_callbacks_of_keras() -> None:
    model = compiled(net(seed=400 + RANK), "sgd")
    given = keras.callbacks.CallbackList([ddl.DDLCallback()], add_history=True, model=model)
    fit(model, callbacks=given)
    equal_on_all_ranks(model.get_weights())


@case
def rank_0_alone_backs_up() -> None:
    """The others begin with the epoch that it goes on with."""
    with tempfile.TemporaryDirectory() as folder:
        backup = keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False)
        callbacks = [backup] if RANK == 0 else []
        fit(compiled(net(seed=500 + RANK), "sgd"), epochs=2, callbacks=callbacks)
        model = compiled(net(seed=600 + RANK), "sgd")
        history = fit(model, epochs=3, callbacks=callbacks)
    assert history.epoch == [2], history.epoch
    equal_on_all_ranks(model.get_weights())


@case
def results_of_evaluate_are_averaged() -> None:
    model = compiled(net(), "sgd")
    x, y = data()

    def evaluate(**options: Any) -> Any:
        return model.evaluate(x[0, RANK], y[0, RANK], verbose=0, **options)

    mine = evaluate(return_dict=True)
    expected = {name: ddl.allreduce(np.array(mine[name]), "average") for name in mine}
    named = evaluate(return_dict=True, callbacks=[ddl.DDLCallback()])
    assert named == expected, (named, expected)
    assert evaluate(callbacks=ddl.DDLCallback()) == [expected["loss"], expected["accuracy"]]
    assert evaluate(return_dict=True) == mine, "only where it is asked for"
    loss, model = model.loss, net()
    model.compile("sgd", loss)
    only_loss = evaluate(callbacks=[ddl.DDLCallback()])
    assert only_loss == expected["loss"], (only_loss, expected)


def told(operation: Callable[[], object]) -> list[str]:
    """The warnings about optimizers."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        operation()
    return [str(one.message) for one in seen if "does not average" in str(one.message)]


@case
def callbacks_warn_where_the_optimizer_does_not_average() -> None:
    from ddl_tensorflow import optimizers

    callbacks = (ddl.DDLCallback, ddl.DDLGlobalVariablesCallback)
    before, optimizers.KIND.always = optimizers.KIND.always, False
    try:
        for callback in callbacks:
            model = compiled(net(), "sgd")
            found = told(lambda: fit(model, callbacks=[callback()]))  # noqa: B023
            assert len(found) == (SIZE > 1), found
            assert all("ddl.DistributedOptimizer" in one for one in found), found
    finally:
        optimizers.KIND.always = before
    assert not told(lambda: fit(compiled(net(), "sgd"), callbacks=[one() for one in callbacks]))
