"""Shared parts of all starters' trainings: a time-limited run, the optimizer, the moving average, mixed precision, loss
logging, files."""

import logging
import math
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

_log = logging.getLogger(__name__)


def begin(seed: int) -> torch.device:
    """Log to the terminal, seed the random generators, and return the training device."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Clock:
    """A training run of a given number of seconds: linear warm-up by steps, then a cosine over the remaining time."""

    def __init__(self, seconds: float, warmup: int) -> None:
        self.seconds, self.warmup = seconds, warmup
        self.start = time.monotonic()
        self.step = 0

    def running(self) -> bool:
        return time.monotonic() - self.start < self.seconds

    def rate(self) -> float:
        """The present factor on the learning rate."""
        done = min((time.monotonic() - self.start) / self.seconds, 1.0)
        return min((self.step + 1) / self.warmup, 1.0) * (0.5 + 0.5 * math.cos(math.pi * done))

    def update(self, adam: torch.optim.AdamW, model: nn.Module, loss: Tensor) -> None:
        """One optimizer step. Now and then it waits for the device, so that host time follows device time."""
        for group in adam.param_groups:
            group["lr"] = group["base"] * self.rate()
        adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        self.step += 1
        if self.step % 20 == 0 and loss.is_cuda:
            torch.cuda.synchronize()


class Ema:
    """A moving average of a model's trained parameters."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.live: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.mean = [p.detach().clone() for p in self.live]
        self.decay, self.steps = decay, 0

    @torch.no_grad()
    def update(self) -> None:
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(self.mean, self.live, 1 - decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the model's parameters with their average."""
        for live, mean in zip(self.live, self.mean, strict=True):
            kept = live.detach().clone()
            live.copy_(mean)
            mean.copy_(kept)


def optimizer(model: nn.Module, rate: float) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": 0.02, "base": rate},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0, "base": rate},
    ]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=True)


def autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


class Progress:
    """Logs losses now and then, as reading them waits for the device."""

    def __init__(self, what: str, *names: str, every: float = 20.0) -> None:
        self._what, self._names, self._every = what, names, every
        self._start, self._next = time.monotonic(), 0.0

    def tell(self, step: int, parts: Tensor) -> None:
        spent = time.monotonic() - self._start
        if spent < self._next:
            return
        self._next = spent + self._every
        values = ", ".join(f"{name} {value:.4f}" for name, value in zip(self._names, parts.tolist(), strict=True))
        _log.info("%s step %d, %.0f s: %s", self._what, step, spent, values)


def save(module: nn.Module, path: Path) -> None:
    """Save all tensors in bf16."""
    tensors = module.state_dict().items()
    save_file({name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in tensors}, path)
