"""The engine: what autograd's hooks and the uses of paged parameters do to an iteration."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from lms.blocks import Block, Saved
from lms.device import hollow
from lms.errors import NoPlanError
from lms.iterations import Iterations
from lms.layers import Layer, Shape
from lms.sizes import size_text
from lms.trace import Call, Key
from lms.weights import Gap, Weight, weight_in, weight_of


class Engine(Iterations):
    """Keeps one program on one device below a limit; arguments as for `Iterations`."""

    # -- autograd's hooks

    def pack(self, tensor: torch.Tensor) -> Saved:
        """Called by autograd with each tensor that it saves."""
        with self._lock, self._aside():
            weight = weight_in(tensor)
            if weight is not None or tensor not in self.managed:
                return Saved(tensor, weight, self.iteration)
            if not self._keys or self._over():
                self._begin()
            return Saved(tensor, self._pack(tensor), self.iteration)

    def unpack(self, saved: Saved) -> torch.Tensor:
        """Called by autograd with what `pack` returned, each time that it needs the tensor.

        Raises:
            InplaceError: it was changed in place since.
        """
        saved.check()
        kept = saved.kept or weight_of(saved.tensor)  # which may be paged since
        if kept is None:
            return saved.tensor
        with self._lock, self._aside():
            if saved.iteration == self.iteration:
                if isinstance(kept, Block):
                    self._unpack(kept)
                else:
                    self._use(kept)
            whole = kept.ready()
            if saved.kept is None:
                return saved.tensor
            if whole.dtype != saved.dtype:
                whole = whole.view(saved.dtype)
            # With the version of the tensor that was saved: what changes this one, changes that.
            tensor = saved.tensor.detach()
            tensor.data = whole.as_strided(saved.shape, saved.stride, saved.offset)
            return tensor

    def _pack(self, tensor: torch.Tensor) -> Block:
        storage = tensor.untyped_storage()
        self._packed = True
        block = self._blocks.get(storage._cdata)
        if block is not None and (block.iteration != self.iteration or not block.is_in(storage)):
            block = None
        number = self._count if block is None else block.number
        key = Key(number, storage.nbytes(), tuple(tensor.shape), str(tensor.dtype))
        self._enter(key)
        if block is None:
            self._count += 1
            block = Block(self, number, tensor)
            self._blocks[storage._cdata] = self._numbered[number] = block
            self._waiting[block] = None
        if self._recorder is not None:
            self._recorder.pack(key, tensor)
        self._leave()
        return block

    def _unpack(self, block: Block) -> None:
        block.used = True
        self._enter(None, block.number)
        if self._recorder is not None:
            self._recorder.unpack(block.number)
        if block.flat is None and self._plan is not None:
            move = self._plan.moves.get(block.number)
            self.missed += move is None or move.fetch < len(self._keys) - 1
        block.ready()
        self._leave()

    # -- parameters that are paged

    def page(self, parameters: Iterable[torch.nn.Parameter]) -> list[Weight]:
        """Pages some parameters from now on: their bytes leave at once. All is learned anew."""
        with self._lock, self._aside():
            self.abandon()
            added = []
            for parameter in parameters:
                added.append(Weight(self, parameter, len(self.weights)))
                self.weights.append(added[-1])
            for weight in added:
                if not weight.held:
                    weight.release()
        return added

    def unpage(self, weights: Iterable[Weight], keep: bool) -> None:
        """Brings parameters back for good, or has done with them."""
        with self._lock, self._aside():
            self.abandon()
            gone = set(weights)
            self.weights = [weight for weight in self.weights if weight not in gone]
            for weight in gone:
                weight.forget(keep)
            for place, weight in enumerate(self.weights):
                weight.place = place

    def touch(self, weight: Weight) -> None:
        """The program is about to use a paged parameter."""
        training = torch.is_grad_enabled()
        with self._lock, self._aside():
            if training or self._numbered:
                if not self._keys or self._over():
                    self._begin()
                self._use(weight)
            elif not weight.here:  # evaluation, or such: in the order of the uses, one by one
                strays, self._strays = self._strays, [weight]
                for other in strays:
                    other.gap.release()
                    self._strays += [other] * other.here
                weight.page_in()

    def _use(self, weight: Weight) -> None:
        """Two events: the time without a use ends, and another begins."""
        gap = weight.gap
        self._enter(None, gap.number)
        if self._recorder is not None:
            self._recorder.unpack(gap.number)
        if not weight.here and self._plan is not None:
            move = self._plan.moves.get(gap.number)
            self.missed += move is None or move.fetch < len(self._keys) - 1
        weight.ready()
        gap.used = True
        self._leave()
        key = Key(self._count, weight.nbytes, weight.shape, weight.dtype)
        self._count += 1
        self._enter(key)
        weight.gap = self._gaps[key.block] = Gap(weight, key.block)
        if self._recorder is not None:
            self._recorder.gap(key, weight.place)
        if self._plan is None:
            self._waiting[weight.gap] = None
        self._leave()

    def stays(self, weight: Weight) -> bool:
        """Whether a parameter is to be in memory when an iteration begins."""
        if self._plan is None or self._trace is None or not self._trace.stepped:
            return False
        return weight.place not in self._plan.moves

    def step_begins(self) -> None:
        """An optimizer is about to step. A plan may not know what that needs; then all leave."""
        if self._trace is None or not self._trace.stepped:
            with self._lock, self._aside():
                for weight in self.weights:
                    weight.gap.release()

    def weight_comes(self, weight: Weight) -> None:
        """A parameter is about to be in memory again."""
        if self._recorder is not None:
            self._recorder.comes(weight)

    def weight_went(self, weight: Weight) -> None:
        """A parameter's memory was given up."""
        if self._recorder is not None:
            self._recorder.went(weight)

    # -- layers that may be computed again

    def add_layers(self, layers: Iterable[Layer]) -> None:
        """They may be computed again from now on. All is learned anew."""
        with self._lock, self._aside():
            self.abandon()
            self.layers.add(layers, self)

    def remove_layer(self, layer: Layer) -> None:
        """It is not computed again any more. All is learned anew."""
        with self._lock, self._aside():
            self.abandon()
            self.layers.drop(layer)

    def layer_begins(self, layer: Layer, tensors: list[torch.Tensor]) -> tuple[int, int]:
        """The forward of such a layer is about to run on `tensors`; for `layer_ends`."""
        with self._lock, self._aside():
            self._given += [(layer, hollow(tensor), tensor._version) for tensor in tensors]
            return self.iteration, len(self._keys)

    def layer_ends(
        self, number: int, begun: tuple[int, int], tensors: list[torch.Tensor], shape: Shape
    ) -> None:
        """It has run.

        Args:
            tensors: what it was given and has returned.
            shape: of the first.
        """
        with self._lock, self._aside():
            first = begun[1] if begun[0] == self.iteration else 0
            kept = set()
            for tensor in tensors:
                if tensor.layout is torch.strided:
                    block = self._blocks.get(tensor.untyped_storage()._cdata)
                    if block is not None and block.iteration == self.iteration:
                        kept.add(block.number)
            if first < len(self._keys):
                call = Call(number, first, len(self._keys), frozenset(kept), shape)
                self._calls.append(call)

    # -- blocks

    def came_back(self, block: Block) -> None:
        """A block is in memory again, in another storage."""
        assert block.flat is not None
        self._blocks[block.flat.untyped_storage()._cdata] = block
        if self._recorder is not None and block.iteration == self.iteration:
            self._recorder.returned(block.number, block.flat)

    def freed(self, block: Block) -> None:
        """Nothing needs the block any more."""
        if self._recorder is not None and block.iteration == self.iteration:
            self._recorder.freed(block.number)

    @property
    def learning(self) -> bool:
        """Whether everything is swapped that can be: no plan keeps anything."""
        return self._plan is None

    def too_much(self, error: torch.OutOfMemoryError) -> NoPlanError:
        """What running out of memory means while everything is swapped: there is no plan."""
        short = self.device.short_of(error)
        return NoPlanError(
            f"no plan keeps this program within {self.limit} bytes ({size_text(self.limit)}): with "
            f"every saved tensor gone that can go it was still at least {short} bytes "
            f"({size_text(short)}) short; raise the limit, make the batch smaller, checkpoint the "
            "largest layers, or page the optimizer's state, lms.page_optimizer(...), and the "
            "parameters, lms.page_parameters(...)",
            short,
        )

    def reclaim(self) -> int:
        """Gives up, at once, all memory of saved tensors that nothing but backward needs.

        Returns:
            Bytes given up.
        """
        freed = 0
        with self._lock, self._aside():
            held: list[Block | Gap] = [*self._numbered.values(), *self._gaps.values()]
            for block in held:
                if isinstance(block, Block):
                    block.recall()
                if block.gone or block.held:
                    continue
                block.page_out()
                block.release()
                freed += block.nbytes * block.freed
        return freed
