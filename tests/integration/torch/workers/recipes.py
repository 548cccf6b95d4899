"""What programs do to gradients between `backward()` and `step()`, each as in one process: the recipes of PyTorch's
documentation, and what else was seen in programs.

A recipe takes a `Step` and makes one optimizer step of it. It knows nothing of ranks: the same function trains one
process with the whole batch and each rank with its part.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_


class Net(torch.nn.Module):
    """A trunk, and two heads of which a sample uses one; large enough that gradients travel in several ways."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.trunk = torch.nn.Sequential(torch.nn.Linear(12, 150), torch.nn.Tanh(), torch.nn.Linear(150, 150))
        self.heads = torch.nn.ModuleList(torch.nn.Linear(150, 2) for _ in range(2))
        self.to(dtype)

    def forward(self, x: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        hidden = self.trunk(x).tanh()
        out = x.new_zeros(len(x), 2)
        for index, layer in enumerate(self.heads):
            if (head == index).any():
                out = torch.where((head == index)[:, None], layer(hidden), out)
        return out


@dataclasses.dataclass
class Step:
    """What a recipe works with.

    Attributes:
        net, optimizer, scaler: of this training.
        micro: the batches of the step, two: (x, head, y).
        pause: to be called where a rank may be late.
        kept: what the recipe keeps from step to step.
    """

    net: Net
    optimizer: Any
    scaler: Any
    micro: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    pause: Callable[[], None]
    kept: dict[str, Any]

    def loss(self, index: int = 0) -> torch.Tensor:
        x, head, y = self.micro[index]
        return torch.nn.functional.mse_loss(self.net(x, head), y)

    def backward(self, loss: torch.Tensor, **more: Any) -> None:
        loss.backward(**more)
        self.pause()

    @property
    def gradients(self) -> list[torch.Tensor]:
        return [p.grad for p in self.net.parameters() if p.grad is not None]


def plain(s: Step) -> None:
    s.optimizer.zero_grad()
    s.backward(s.loss())
    s.optimizer.step()


def amp(s: Step) -> None:
    s.optimizer.zero_grad()
    s.backward(s.scaler.scale(s.loss()))
    s.scaler.step(s.optimizer)
    s.scaler.update()


def amp_with_clipping(s: Step) -> None:
    s.optimizer.zero_grad()
    s.backward(s.scaler.scale(s.loss()))
    s.scaler.unscale_(s.optimizer)
    clip_grad_norm_(s.net.parameters(), max_norm=0.05)
    s.scaler.step(s.optimizer)
    s.scaler.update()


def amp_with_accumulation(s: Step) -> None:
    for index in range(2):
        s.backward(s.scaler.scale(s.loss(index) / 2))
    s.scaler.step(s.optimizer)
    s.scaler.update()
    s.optimizer.zero_grad()


def amp_with_two_losses(s: Step) -> None:
    s.optimizer.zero_grad()
    first, second = s.loss(0), s.loss(1)
    # With a sum that has a minimum, at a rate for which 20 steps converge: only then can results be compared.
    s.backward(s.scaler.scale(0.2 * first + 0.3 * second), retain_graph=True)
    s.backward(s.scaler.scale(0.3 * first - 0.2 * second))
    s.scaler.unscale_(s.optimizer)
    s.scaler.step(s.optimizer)
    s.scaler.update()


def clip_norm(s: Step) -> None:
    s.optimizer.zero_grad()
    s.backward(s.loss())
    clip_grad_norm_(s.net.parameters(), 0.05)
    s.optimizer.step()


def clip_norm_of_a_part(s: Step) -> None:
    s.optimizer.zero_grad()
    s.backward(s.loss())
    clip_grad_norm_(s.net.trunk[0].parameters(), 0.01)
    s.optimizer.step()


def clip_value(s: Step) -> None:
    s.optimizer.zero_grad()
    s.backward(s.loss())
    clip_grad_value_(s.net.parameters(), 1e-3)
    s.optimizer.step()


def clamp_data(s: Step) -> None:
    s.optimizer.zero_grad()
    s.backward(s.loss())
    for parameter in s.net.parameters():
        if parameter.grad is not None:
            parameter.grad.data.clamp_(-1e-3, 1e-3)
    s.optimizer.step()


def accumulation(s: Step) -> None:
    s.optimizer.zero_grad()
    for index in range(2):
        s.backward(s.loss(index) / 2)
    s.optimizer.step()


def accumulation_into_kept_gradients(s: Step) -> None:
    s.optimizer.zero_grad(set_to_none=False)
    for index in range(2):
        s.backward(s.loss(index) / 2)
    s.optimizer.step()


def clipping_each_pass(s: Step) -> None:
    s.optimizer.zero_grad()
    for index in range(2):
        s.backward(s.loss(index))
        clip_grad_norm_(s.net.parameters(), 0.05)
    s.optimizer.step()


def discarded_pass(s: Step) -> None:
    s.net.zero_grad()
    s.backward(s.loss(1))
    s.net.zero_grad()
    s.backward(s.loss(0))
    s.optimizer.step()


def skipped_step(s: Step) -> None:
    s.optimizer.zero_grad()
    s.backward(s.loss())
    if clip_grad_norm_(s.net.parameters(), 1e9) > 0.35:
        s.optimizer.zero_grad()
        return
    s.optimizer.step()


def scaled_by_hand(s: Step) -> None:
    s.optimizer.zero_grad()
    s.backward(s.loss() * 64)
    torch._foreach_mul_(s.gradients, 1 / 64)
    s.optimizer.step()


def gradients_kept_in_a_list(s: Step) -> None:
    s.optimizer.zero_grad(set_to_none=False)
    gradients = s.kept.get("gradients")
    s.backward(s.loss())
    if gradients is not None:
        torch._foreach_clamp_max_(gradients, 1e-3)
        torch._foreach_clamp_min_(gradients, -1e-3)
    elif all(p.grad is not None for p in s.net.parameters()):
        s.kept["gradients"] = s.gradients
    s.optimizer.step()


def views_of_one_buffer(s: Step) -> None:
    if "buffer" not in s.kept:
        sizes = [p.numel() for p in s.net.parameters()]
        s.kept["buffer"] = torch.zeros(sum(sizes), dtype=next(s.net.parameters()).dtype)
        for parameter, part in zip(s.net.parameters(), s.kept["buffer"].split(sizes)):
            parameter.grad = part.view_as(parameter)
    s.kept["buffer"].zero_()
    s.backward(s.loss())
    s.kept["buffer"].clamp_(-1e-3, 1e-3)
    s.optimizer.step()


def gradient_penalty(s: Step) -> None:
    s.optimizer.zero_grad()
    # A penalty is not linear, so each sample has one of its own: else ranks would make others than one process.
    x, head, y = s.micro[0]
    used = list(s.net.trunk.parameters())
    each = [torch.nn.functional.mse_loss(s.net(x[i : i + 1], head[i : i + 1]), y[i : i + 1]) for i in range(len(x))]
    total = sum(
        one + 1e-2 * sum(g.square().sum() for g in torch.autograd.grad(one, used, create_graph=True)) for one in each
    )
    s.backward(total / len(x))
    clip_grad_norm_(s.net.parameters(), 0.05)
    s.optimizer.step()


def graph_of_the_gradients(s: Step) -> None:
    s.optimizer.zero_grad()
    s.backward(s.loss(), create_graph=True)
    for parameter in s.net.parameters():
        if parameter.grad is not None:
            parameter.grad = (parameter.grad * 0.5).detach()
    s.optimizer.step()


def averaged_weights(s: Step) -> None:
    plain(s)
    with torch.no_grad():
        for index, parameter in enumerate(s.net.parameters()):
            average = s.kept.setdefault(index, parameter.detach().clone())
            average.lerp_(parameter, 0.1)
            parameter.lerp_(average, 0.05)


def hooks_of_the_program(s: Step) -> None:
    # Linear ones: what is done within a pass is done to the gradients of this rank.
    s.optimizer.zero_grad()

    def halve(parameter: torch.Tensor) -> None:
        parameter.grad.mul_(0.5)  # type: ignore[union-attr]

    handles = [p.register_post_accumulate_grad_hook(halve) for p in s.net.parameters()]
    s.backward(s.loss())
    for handle in handles:
        handle.remove()
    clip_grad_value_(s.net.parameters(), 1e-3)
    s.optimizer.step()


def looked_at_by_one_rank(s: Step) -> None:
    s.optimizer.zero_grad()
    s.backward(s.loss())
    if s.kept.setdefault("looks", True):
        s.kept["norm"] = float(sum(g.norm() for g in s.gradients))
        s.kept["text"] = [repr(g)[:20] for g in s.gradients] + [g.shape for g in s.gradients]
    s.optimizer.step()


def synchronized_by_hand(s: Step) -> None:
    s.optimizer.zero_grad()
    s.backward(s.loss())
    getattr(s.optimizer, "synchronize", lambda: None)()
    clip_grad_norm_(s.net.parameters(), 0.05)
    s.optimizer.step()


RECIPES: dict[str, Callable[[Step], None]] = {
    recipe.__name__: recipe
    for recipe in (
        plain, amp, amp_with_clipping, amp_with_accumulation, amp_with_two_losses, clip_norm, clip_norm_of_a_part,
        clip_value, clamp_data, accumulation, accumulation_into_kept_gradients, clipping_each_pass, discarded_pass,
        skipped_step, scaled_by_hand, gradients_kept_in_a_list, views_of_one_buffer, gradient_penalty,
        graph_of_the_gradients, averaged_weights, hooks_of_the_program, looked_at_by_one_rank, synchronized_by_hand,
    )
}  # fmt: skip
