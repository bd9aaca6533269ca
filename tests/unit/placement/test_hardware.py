"""The probe on this host, and the memory that running plans leave."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from msgspec.structs import replace as with_fields

from tests.support.placing import GIB, hardware, planned
from walkgraph.placement.hardware import Device, find_hardware, gpus, released, reserve


def test_this_host_has_a_cpu_with_memory() -> None:
    found = find_hardware()
    cpu = found.device("cpu")
    assert cpu is not None
    assert 0 < cpu.free <= cpu.total
    assert found.cores >= 1
    assert found.host
    assert len({device.name for device in found.devices}) == len(found.devices)


def test_reservations_count_even_if_they_are_not_filled_yet() -> None:
    made = planned(devices=("cuda:0",))
    assert made.plan is not None
    (rank,) = made.plan.ranks
    plan = with_fields(made.plan, ranks=(with_fields(rank, budget=(("weights w", 5 * GIB), ("kv main", 2 * GIB))),))
    left = reserve(hardware(32 * GIB, 32 * GIB), [plan, plan])
    assert [device.free // GIB for device in left.devices] == [32, 18, 32]


def test_nothing_is_less_than_nothing() -> None:
    made = planned(devices=("cuda:0",))
    assert made.plan is not None
    left = reserve(hardware(1 * GIB), [made.plan])
    assert left.device("cuda:0") is not None
    assert min(device.free for device in left.devices) == 0


def test_what_others_hold_is_not_free_either() -> None:
    host = hardware(32 * GIB)
    busy = replace(host, devices=tuple(replace(device, free=3 * GIB) for device in host.devices))
    assert [device.free for device in reserve(busy, []).devices] == [3 * GIB, 3 * GIB]


class Nvml:
    """Two GPUs, or no driver, or a driver that fails half-way."""

    class NVMLError(Exception):
        pass

    def __init__(self, count: int = 2, broken: int = 9) -> None:
        self.count, self.broken = count, broken
        self.open = False

    def nvmlInit(self) -> None:
        if self.count < 0:
            raise self.NVMLError
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= self.broken:
            raise self.NVMLError
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=8 * GIB, free=(handle + 1) * GIB)

    def nvmlDeviceGetName(self, handle: int) -> str:
        return f"GPU {handle}"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{'ab'[handle]}0-11"


def test_what_a_plan_holds_is_free_once_its_processes_have_ended() -> None:
    made = planned(devices=("cpu",))
    assert made.plan is not None
    held = sum(size for _, size in made.plan.ranks[0].budget)
    busy = replace(
        hardware(), devices=(Device(name="cpu", total=32 * GIB, free=32 * GIB - held - 1),), others=(hardware(cpu=GIB),)
    )
    assert [host.devices[0].free for host in released(busy, made.plan).hosts] == [32 * GIB - 1, GIB]
    assert released(hardware(), made.plan).devices[0].free == 32 * GIB, "no more than there is"


@pytest.mark.parametrize(
    ("visible", "labels"),
    [
        (None, ["GPU 0", "GPU 1"]),
        (["1", "0"], ["GPU 1", "GPU 0"]),
        (["1"], ["GPU 1"]),
        (["GPU-a0"], ["GPU 0"]),
        (["1", "7", "0"], ["GPU 1"]),
        (["-1"], []),
        ([""], []),
        (["GPU-"], []),
    ],
)
def test_only_gpus_that_workers_see_are_found(visible: list[str] | None, labels: list[str]) -> None:
    found = list(gpus(Nvml(), visible))
    assert [device.label for device in found] == labels
    assert [device.name for device in found] == [f"cuda:{index}" for index in range(len(labels))]


def test_gpus_are_told_with_their_memory() -> None:
    nvml = Nvml()
    assert list(gpus(nvml)) == [
        Device(name="cuda:0", total=8 * GIB, free=GIB, label="GPU 0"),
        Device(name="cuda:1", total=8 * GIB, free=2 * GIB, label="GPU 1"),
    ]
    assert not nvml.open


@pytest.mark.parametrize(("nvml", "count"), [(Nvml(count=-1), 0), (Nvml(count=0), 0), (Nvml(broken=1), 1)])
def test_a_driver_that_is_not_there_or_fails_leaves_what_it_told(nvml: Nvml, count: int) -> None:
    assert len(list(gpus(nvml))) == count
    assert not nvml.open
