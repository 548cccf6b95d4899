"""What a process group moves: broadcast, all_gather, gather, scatter, all_to_all, barrier, send and recv. Part of
`group`.

Gather and scatter are an all_to_all in which all but the root's parts are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch

import horovod.torch as hvd
from horovod._core.errors import HorovodInternalError, InvalidArgumentError, UnsupportedError
from horovod._core.life import handles
from horovod._core.life.engine_port import ALLGATHER, ALLTOALL
from horovod.torch.collectives.operators import collectives
from horovod.torch.distributed.calls import GroupCalls
from horovod.torch.distributed.operands import (
    apart,
    cut,
    flat,
    forms_of,
    in_place,
    joined,
    real,
    require_sizes,
    sizes_of,
    split_sizes,
)
from horovod.torch.distributed.works import CallWork, EndedWork

__all__ = ["Movements"]

# Up to here a send is copied where there is room, and over at once, so that two ranks may both send first.
_COPIED_BYTES = 64 * 1024


class Movements(GroupCalls):
    """See the module; the methods are those of torch.distributed.ProcessGroup."""

    _uncopied: Optional[CallWork] = None

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any) -> CallWork:
        """Copies the root's tensor into the others'. Collective."""
        (tensor,), root = tensors, opts.rootRank
        (given,), finish = in_place([tensor])

        def submit(name: str) -> int:
            return hvd.broadcast_async_(given, self._global(root), name=name, process_set=self._set)

        return self._start("broadcast", (root, forms_of([given])), submit, tensors, finish, opts.timeout)

    def allgather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> CallWork:
        """Fills each rank's list with the tensors of all, which may have different sizes. Collective."""
        return self._gather_all("all_gather", outputs, inputs, outputs, opts)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> CallWork:
        """Fills each rank's tensor with those of all, one after the other. Collective."""
        with self._refusing("all_gather_single", ALLGATHER):
            sent, into, copy_back = apart("all_gather_single", given, output)
        whole = sent.numel() * self.size()

        def submit(name: str) -> int:
            return collectives.begin_into(ALLGATHER, sent, into, name, self._set)

        def finish(come: int) -> None:
            require_sizes("all_gather_single", [whole, come // sent.element_size()], [into.numel()] * 2)
            if copy_back is not None:
                copy_back(come)

        call = (sent.dtype, into.numel())
        return self._start("all_gather_single", call, submit, [output], finish, getattr(opts, "timeout", None))

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> CallWork:
        """As `all_gather_single`, for several tensors at once. Collective."""
        return self._gather_all("all_gather_single", [[output] for output in outputs], inputs, outputs, opts)

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> CallWork:
        """As `allgather`, for several tensors at once; a list of outputs for each. Collective."""
        return self._gather_all("all_gather", outputs, inputs, outputs, opts)

    # Their names in other versions of torch.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any) -> CallWork:
        """Fills the root's list with the tensors of all. Collective."""
        (given,), root = inputs, opts.rootRank
        sent = flat(given)
        targets = outputs[0] if root == self.rank() else []
        sizes = [sent.numel() if rank == root else 0 for rank in range(self.size())]
        expected = [real(target).numel() for target in targets] or [0] * self.size()
        return self._exchange("gather", targets, sent, sizes, expected, (root, sent.dtype), outputs, opts)

    def gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any) -> CallWork:
        """Fills the root's tensor with those of all, one after the other. Collective."""
        parts = output.chunk(self.size()) if opts.rootRank == self.rank() else ()
        return self.gather([parts], [given], opts)

    def scatter(self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any) -> CallWork:
        """Gives each rank its entry of the root's list. Collective."""
        (output,), root = outputs, opts.rootRank
        if root == self.rank():
            with self._refusing("scatter", ALLTOALL):
                sent = joined(inputs[0])
            sizes = [real(one).numel() for one in inputs[0]]
        else:
            sent, sizes = flat(output)[:0], [0] * self.size()
        expected = [real(output).numel() if rank == root else 0 for rank in range(self.size())]
        return self._exchange("scatter", [output], sent, sizes, expected, (root, output.dtype), outputs, opts)

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> CallWork:
        """Sends the n-th tensor to the n-th rank, and fills the n-th of the outputs with that rank's. Collective."""
        sizes, expected = ([real(one).numel() for one in tensors] for tensors in (inputs, outputs))
        with self._refusing("all_to_all", ALLTOALL):
            sent = joined(inputs)
        return self._exchange("all_to_all", outputs, sent, sizes, expected, inputs[0].dtype, outputs, opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
    ) -> CallWork:
        """Sends a part of the rows to each rank, and fills the output with those of all. Collective."""
        with self._refusing("all_to_all_single", ALLTOALL):
            sizes = self._elements(given, input_split_sizes)
            expected = self._elements(output, output_split_sizes)
            sent, into, copy_back = apart("all_to_all_single", given, output)
        splits = sizes if len(set(sizes)) > 1 else None

        def submit(name: str) -> int:
            return collectives.begin_into(ALLTOALL, sent, into, name, self._set, splits)

        def finish(come: list[int]) -> None:
            require_sizes("all_to_all_single", come, expected)
            if copy_back is not None:
                copy_back(come)

        return self._start("all_to_all_single", sent.dtype, submit, [output], finish, getattr(opts, "timeout", None))

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None) -> CallWork:
        """Ends when all ranks have called it. Collective."""
        token = torch.zeros(1, dtype=torch.uint8)

        def submit(name: str) -> int:
            return hvd.allreduce_async_(token, name=name, op=hvd.Max, process_set=self._set)

        return self._start("barrier", (), submit, [], None, getattr(opts, "timeout", None))

    # ---- between two ranks

    def send(self, tensors: Sequence[torch.Tensor], to_rank: int, tag: int = 0) -> CallWork:
        """Sends a tensor to another rank, which calls `recv`. The n-th send to it meets its n-th recv from here."""
        (tensor,) = tensors
        _require_no_tag(tag)
        sent, what = flat(tensor), f"send to rank {to_rank}"
        if sent.numel() * sent.element_size() > _COPIED_BYTES:
            return CallWork(hvd.send_async(sent, to_rank, process_set=self._set), what, tensors, None, self._timeout_s)
        # The last send for whose copy there was no room; after it has been received there is.
        is_full = self._uncopied is not None and not self._uncopied.is_completed()
        try:
            pending = collectives.begin_send(sent, to_rank, self._set, at_once=is_full)
        except HorovodInternalError as error:
            return EndedWork(what, tensors, error)
        if pending.handle == handles.DONE:
            self._uncopied = None
            return EndedWork(what, tensors)
        work = CallWork(handles.add(pending), what, tensors, None, self._timeout_s)
        self._uncopied = None if work.is_completed() else work
        return work

    def recv(self, tensors: Sequence[torch.Tensor], from_rank: int, tag: int = 0) -> CallWork:
        """Receives what another rank sends, into a tensor."""
        (tensor,) = tensors
        _require_no_tag(tag)
        (given,), copy_back = in_place([tensor])
        handle = hvd.recv_async(given.view(-1), from_rank, process_set=self._set)
        return CallWork(handle, f"recv from rank {from_rank}", tensors, copy_back, self._timeout_s)

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> CallWork:
        """Not there: raises UnsupportedError."""
        raise UnsupportedError(
            "The backend 'horovod' receives from a rank that the call names. Received: recv without src. Give src=RANK."
        )

    def _elements(self, tensor: torch.Tensor, splits: Sequence[int]) -> list[int]:
        """Of each rank's rows."""
        rows = tensor.shape[0] if tensor.dim() else 1
        elements, size = real(tensor).numel(), len(self._ranks)
        if not splits and rows % size == 0:
            return [elements // size] * size
        width = elements // rows if rows else 0
        return [split * width for split in split_sizes("all_to_all_single", rows, splits, size)]

    def _gather_all(
        self,
        what: str,
        outputs: Sequence[Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        result: Any,
        opts: Any,
    ) -> CallWork:
        """Args: outputs: for each input a tensor for each rank's, or one for all of them."""
        sent = [flat(given) for given in inputs]
        expected = [self._own_part(targets) for targets in outputs]

        def submit(name: str) -> int:
            if len(sent) == 1:
                return hvd.allgather_async(sent[0], name=name, process_set=self._set)
            return hvd.grouped_allgather_async(sent, name=name, process_set=self._set)

        def finish(gathered: Any) -> None:
            require_sizes(what, [one.numel() for one in sent], expected)
            for targets, one in zip(outputs, [gathered] if len(sent) == 1 else gathered):
                cut(what, one, targets)

        call = tuple(sizes_of(targets) for targets in outputs)
        return self._start(what, call, submit, result, finish, getattr(opts, "timeout", None))

    def _own_part(self, targets: Sequence[torch.Tensor]) -> int:
        """The elements that all ranks expect of this one."""
        return real(targets[0]).numel() // self.size() if len(targets) == 1 else real(targets[self.rank()]).numel()

    def _exchange(
        self,
        what: str,
        targets: Sequence[torch.Tensor],
        sent: torch.Tensor,
        sizes: Sequence[int],
        expected: Sequence[int],
        call: Any,
        result: Any,
        opts: Any,
    ) -> CallWork:
        """An all_to_all of elements.

        Args:
            sizes: how many of `sent` go to each rank.
            expected: how many come from each.
        """

        def submit(name: str) -> int:
            return hvd.alltoall_async(sent, splits=list(sizes), name=name, process_set=self._set)

        def finish(received: tuple[torch.Tensor, torch.Tensor]) -> None:
            require_sizes(what, received[1].tolist(), expected)
            if targets:
                cut(what, received[0], targets)

        return self._start(what, call, submit, result, finish, getattr(opts, "timeout", None))


def _require_no_tag(tag: int) -> None:
    if tag:
        raise InvalidArgumentError(
            f"The backend 'horovod' knows no tags: the n-th send to a rank meets its n-th recv. Received: tag={tag}. "
            "Leave it out, and receive in the order in which the other rank sends."
        )
