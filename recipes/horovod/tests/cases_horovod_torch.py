"""What only horovod.torch has: handles, operations in place, parameters, optimizer state."""

from __future__ import annotations

import numpy as np
import torch
from horovod import torch as hvd
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, SIZE, Array, case, close, everyone, given, refused, same
from torch import Tensor, nn


def tensor(*shape: int, rank: int = RANK, salt: int = 0) -> Tensor:
    return torch.from_numpy(given(rank, *shape, salt=salt)).float()


def numbers(value: Tensor) -> Array:
    return np.asarray(value.detach().double().numpy())


@case
def what_was_built(f: Frame) -> None:
    assert hvd.ddl_built()
    assert hvd.mpi_built()
    assert hvd.mpi_enabled()
    assert hvd.mpi_threads_supported()
    assert hvd.is_initialized()
    assert (hvd.local_rank(), hvd.local_size()) == (RANK, SIZE)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)


@case
def in_place(f: Frame) -> None:
    value = tensor(5, 3)
    assert hvd.allreduce_(value, op=hvd.Sum, name=f.name("a")) is value
    same(numbers(value), everyone(5, 3).sum(0))
    value = tensor(5, 3)
    assert hvd.broadcast_(value, SIZE - 1, name=f.name("b")) is value
    same(numbers(value), given(SIZE - 1, 5, 3))
    values = [tensor(4), tensor(2, 2)]
    outputs = hvd.grouped_allreduce_(values, op=hvd.Max, name=f.name("g"))
    assert all(a is b for a, b in zip(values, outputs, strict=True))
    same(numbers(values[0]), everyone(4).max(0))
    same(numbers(values[1]), everyone(2, 2).max(0))


@case
def inputs_are_left_as_they_are(f: Frame) -> None:
    value = tensor(SIZE, 3)
    hvd.allreduce(value, op=hvd.Sum, prescale_factor=2.0, name=f.name("a"))
    hvd.grouped_allreduce([value], op=hvd.Sum, name=f.name("g"))
    hvd.broadcast(value, 0, name=f.name("b"))
    hvd.reducescatter(value, op=hvd.Sum, prescale_factor=2.0, name=f.name("r"))
    hvd.alltoall(value, name=f.name("t"))
    same(numbers(value), given(RANK, SIZE, 3))


@case
def many_handles_at_once(f: Frame) -> None:
    """Begun in another order on every rank, of all operations, and waited for backwards."""
    value = tensor(4 * SIZE)
    begin = [
        *(
            lambda i=i: hvd.allreduce_async(tensor(i + 1, salt=i), name=f.name(f"r{i}"), op=hvd.Sum)
            for i in range(40)
        ),
        lambda: hvd.allgather_async(value, name=f.name("g")),
        lambda: hvd.broadcast_async(value, 0, name=f.name("b")),
        lambda: hvd.reducescatter_async(value, name=f.name("s"), op=hvd.Sum),
        lambda: hvd.grouped_allreduce_async([value, value], name=f.name("gr"), op=hvd.Min),
        lambda: hvd.grouped_allgather_async([value, value], name=f.name("gg")),
        lambda: hvd.grouped_reducescatter_async([value], name=f.name("gs"), op=hvd.Sum),
        lambda: hvd.alltoall_async(value, name=f.name("t")),
    ]
    order = np.random.default_rng(RANK).permutation(len(begin))
    handles = {int(i): begin[i]() for i in order}
    out = {i: hvd.synchronize(handle) for i, handle in reversed(handles.items())}
    for i in range(40):
        same(numbers(out[i]), everyone(i + 1, salt=i).sum(0), i)
    everything = everyone(4 * SIZE)
    mine = slice(4 * RANK, 4 * RANK + 4)
    same(numbers(out[40]), everything.ravel())
    same(numbers(out[41]), everything[0])
    same(numbers(out[42]), everything.sum(0)[mine])
    same(numbers(out[43][1]), everything.min(0))
    same(numbers(out[44][1]), everything.ravel())
    same(numbers(out[45][0]), everything.sum(0)[mine])
    same(numbers(out[46][0]), everything[:, mine].ravel())


@case
def poll_says_when_it_is_done(f: Frame) -> None:
    handle = hvd.allreduce_async(tensor(100_000), name=f.name("x"), op=hvd.Sum)
    while not hvd.poll(handle):
        pass
    same(numbers(hvd.synchronize(handle)), everyone(100_000).sum(0))
    assert hvd.synchronize(handle) is None


@case
def one_name_twice_at_a_time_is_refused(f: Frame) -> None:
    """On every rank alike; the first operation ends well."""
    if SIZE == 1:
        return
    if RANK == 0:  # rank 0 comes to x last, so that the others' first is still under way
        hvd.allreduce(tensor(1), name=f.name("go"), op=hvd.Sum)
        first = hvd.allreduce_async(tensor(9), name=f.name("x"), op=hvd.Sum)
    else:
        first = hvd.allreduce_async(tensor(9), name=f.name("x"), op=hvd.Sum)
        refused(
            lambda: hvd.allreduce(tensor(9), name=f.name("x"), op=hvd.Sum),
            "same name",
            *f.errors,
        )
        hvd.allreduce(tensor(1), name=f.name("go"), op=hvd.Sum)
    same(numbers(hvd.synchronize(first)), everyone(9).sum(0))


@case
def types_it_does_not_know_are_refused(f: Frame) -> None:
    kinds = [torch.complex64, torch.bool, torch.int16]
    for operation, dtypes in ((hvd.allreduce, kinds), (hvd.allgather, kinds[:1])):
        for dtype in dtypes:
            refused(
                lambda o=operation, d=dtype: o(torch.ones(3, dtype=d), name=f.name("x")),
                "is not supported",
                ValueError,
            )
    refused(lambda: hvd.allreduce(tensor(3, 4).t(), name=f.name("t")), "contiguous", ValueError)


@case
def bool_buffers_of_a_model_are_broadcast(f: Frame) -> None:
    net = torch.nn.Linear(2, 2)
    net.register_buffer("mask", torch.tensor([RANK == 0, RANK != 0, True]))
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    assert net.mask.tolist() == [True, False, True]


@case
def groups_of_several_types(f: Frame) -> None:
    """Types differ inside of a group, never between ranks."""
    kinds = [torch.float32, torch.float64, torch.int64, torch.float16, torch.int32]
    for turn in range(3):
        values = [tensor(3 + i, salt=turn).to(kind) for i, kind in enumerate(kinds)]
        outputs = hvd.grouped_allreduce(values, op=hvd.Sum, name=f.name("r"))
        gathered = hvd.grouped_allgather(values, name=f.name("g"))
        for i, kind in enumerate(kinds):
            assert outputs[i].dtype == gathered[i].dtype == kind
            same(numbers(outputs[i]), everyone(3 + i, salt=turn).sum(0), kind)
            same(numbers(gathered[i]), everyone(3 + i, salt=turn).ravel(), kind)


@case
def sixteen_bit_compression(f: Frame) -> None:
    value = torch.full((9,), 1.0 + 2.0**-12 * (RANK + 1))
    out = hvd.allreduce(value, op=hvd.Sum, compression=hvd.Compression.fp16, name=f.name("a"))
    assert out.dtype == torch.float32
    same(numbers(out), np.full(9, float(SIZE)))  # what float16 does not hold is gone
    out = hvd.allreduce(
        torch.arange(4), op=hvd.Sum, compression=hvd.Compression.fp16, name=f.name("int")
    )
    same(numbers(out), SIZE * np.arange(4.0))
    outputs = hvd.grouped_allreduce(
        [tensor(4)], op=hvd.Sum, compression=hvd.Compression.fp16, name=f.name("g")
    )
    same(numbers(outputs[0]), everyone(4).sum(0))


@case
def sparse_tensors(f: Frame) -> None:
    """Rank r has values at r and r + 1 of SIZE + 1 places; the ones at a place are added."""
    indices = torch.tensor([[RANK, RANK + 1]])
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    mine = torch.sparse_coo_tensor(indices, values, (SIZE + 1, 2))
    for op, factor in ((hvd.Sum, 1.0), (hvd.Average, 1.0 / SIZE)):
        handle = hvd.sparse_allreduce_async(mine, name=f.name(str(op)), op=op)
        total = np.zeros((SIZE + 1, 2))
        for rank in RANKS:
            total[rank : rank + 2] += values.numpy()
        close(numbers(handle().to_dense()), total * factor)


@case
def barrier(f: Frame) -> None:
    for _ in range(3):
        hvd.barrier()
    hvd.barrier(process_set=hvd.global_process_set)


def model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


@case
def elastic_sampler(f: Frame) -> None:
    """All ranks together see every sample of an epoch; what was processed is not seen again."""
    count = 12 * SIZE + 1
    sampler = hvd.elastic.ElasticSampler(range(count), shuffle=True, seed=3)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        mine = list(sampler)
        assert len(mine) == len(sampler) == 13
        everything = sorted(i for part in hvd.allgather_object(mine, f.name("a")) for i in part)
        assert set(everything) == set(range(count))
        epochs.append(mine)
    assert epochs[0] != epochs[1]
    sampler.record_batch(0, 4)  # four of every rank
    state = sampler.state_dict()
    sampler.load_state_dict(state)
    rest = {i for part in hvd.allgather_object(list(sampler), f.name("b")) for i in part}
    seen = {i for part in hvd.allgather_object(epochs[1][:4], f.name("c")) for i in part}
    assert rest == set(range(count)) - seen
    plain = list(hvd.elastic.ElasticSampler(range(2 * SIZE), shuffle=False))
    assert plain == [RANK, RANK + SIZE]


@case
def sync_batch_norm_on_a_cpu_is_refused_in_words(f: Frame) -> None:
    """torch's kernel for it is for GPUs only; stock Horovod says so, too."""
    layer = hvd.SyncBatchNorm(3)
    refused(lambda: layer(torch.ones(4, 3)), "expected input tensor to be on GPU", ValueError)
    refused(lambda: layer._check_input_dim(torch.ones(4)), "at least 2D", ValueError)


@case
def elastic_state(f: Frame) -> None:
    net = model(RANK)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1 + RANK, momentum=0.9)
    state = hvd.elastic.TorchState(net, optimizer, epoch=RANK, batch=10 * RANK)
    state.sync()
    assert (state.epoch, state.batch) == (0, 0)
    for key, value in net.state_dict().items():
        assert torch.equal(value, model(0).state_dict()[key]), key
    assert optimizer.param_groups[0]["lr"] == 0.1
    state.epoch = 5
    state.save()
    state.epoch = 6
    with torch.no_grad():
        next(net.parameters()).zero_()
    state.restore()
    assert state.epoch == 5
    assert torch.equal(next(net.parameters()), next(model(0).parameters()))
