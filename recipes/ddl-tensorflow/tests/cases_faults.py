"""An exception anywhere in `fit` leaves what it would leave without ddl: drawn at random."""

import contextlib
import random
from collections.abc import Callable
from typing import Any

import ddl
import keras
import numpy as np
import tf_keras
from ddl_tensorflow import keras2, optimizers
from harness import close, equal_on_all_ranks
from ranked import case

HOOKS = [
    *("on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end"),
    *("on_test_begin", "on_test_batch_begin", "on_test_batch_end", "on_test_end"),
    *("on_epoch_end", "on_train_end", "train_step"),
]
LISTS = ["none", "ours", "keras"]
X = np.random.default_rng(3).normal(size=(12, 4)).astype("float32")  # all ranks have the same
SEEN = ("layers", "_ddl_number")  # made anew by each look; ddl's own


class Fault(Exception):
    pass


def failing(hook: str, after: int) -> Callable[..., None]:
    left = [after]

    def fail(*_: Any, **__: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Fault(hook)

    return fail


def compiled(library: Any) -> Any:
    library.utils.set_random_seed(1)
    model = library.Sequential([library.Input((4,)), library.layers.Dense(2)])
    model.compile(library.optimizers.SGD(0.1, momentum=0.9), "mse", run_eagerly=True)
    model.optimizer.build(model.trainable_variables)  # as ddl does before the first step
    model.note = model.optimizer.note = "the user's"
    return model


def fit(model: Any, callbacks: Any) -> None:
    options = {"validation_data": (X[:4], X[:4, :2]), "batch_size": 4, "epochs": 2, "verbose": 0}
    model.fit(X, X[:, :2], callbacks=callbacks, **options)


def names(x: Any) -> dict[str, int]:
    return {name: id(value) for name, value in vars(x).items() if name not in SEEN}


def end(library: Any, hook: str, after: int, kind: str) -> tuple[Any, list[str]]:
    """A model whose `fit` has failed, and whatever of the user's is not as it was."""
    model = compiled(library)
    broken = library.callbacks.Callback()
    fail = failing(hook, after)
    if hook == "train_step":
        original = model.train_step
        model.train_step = lambda data: (fail(), original(data))[1]
    else:
        setattr(broken, hook, fail)
    callbacks: Any = [broken]
    if kind == "ours":
        callbacks = [ddl.DDLCallback(), broken, ddl.DDLGlobalVariablesCallback()]
    elif kind == "keras":
        callbacks = library.callbacks.CallbackList([broken], add_history=True, model=model)
    listed = getattr(callbacks, "callbacks", callbacks)
    before = [names(model), names(model.optimizer), dict(enumerate(map(id, listed)))]
    with contextlib.suppress(Fault):
        fit(model, callbacks)
    now = [names(model), names(model.optimizer), dict(enumerate(map(id, listed)))]
    changed = [
        f"{owner}.{name}"
        for owner, (old, new) in enumerate(zip(before, now, strict=True))
        for name in old.keys() | new.keys()
        if old.get(name) != new.get(name)
    ]
    return model, sorted(changed)


@case
def exceptions_leave_what_is_the_users() -> None:
    draw = random.Random(20)
    kinds = {keras: optimizers.KIND, tf_keras: keras2.KIND}
    for turn in range(16):
        library = draw.choice(list(kinds))
        hook, after, kind = draw.choice(HOOKS), draw.randrange(4), draw.choice(LISTS)
        words = (turn, library.__name__, hook, after, kind)
        model, changed = end(library, hook, after, kind)
        before, kinds[library].always = kinds[library].always, False
        try:
            plain, expected = end(library, hook, after, "none" if kind == "ours" else kind)
        finally:
            kinds[library].always = before
        assert changed == expected, (*words, set(changed) ^ set(expected))
        assert model.note == model.optimizer.note == "the user's", words
        close(model.get_weights(), plain.get_weights())
        fit(compiled(library), None)  # nothing of the fault is left
        equal_on_all_ranks(model.get_weights())
