"""The turns of a task's conversation: which roles and parts its steps take."""

from walkgraph.graph.conversation import MESSAGES, ROLES, Role
from walkgraph.graph.document import ForStep, PartsStep, Step, Task, TurnsStep
from walkgraph.graph.steps import inside, lanes

SHOWN = frozenset({"text", "image", "audio", "video"})
"""The parts that a conversation may have."""
_TEXT = frozenset({"text"})


def turn_parts(task: Task) -> dict[Role, frozenset[str]]:
    """Role -> the modalities of parts that the task takes in such turns; empty for a task without a conversation."""
    if not any(declared.modality == MESSAGES for declared in task.inputs.values()):
        return {}
    found: dict[Role, frozenset[str]] = dict.fromkeys(ROLES, SHOWN)
    for steps in map(_turns_steps, lanes(task).values()):
        for step in steps:
            branches = step.branches
            found = {role: kinds & _modalities(branches[role]) for role, kinds in found.items() if role in branches}
    return found


def _modalities(steps: tuple[Step, ...]) -> frozenset[str]:
    """Modalities that every `for: parts` of these steps takes; texts alone where they go through no parts."""
    found = [frozenset(step.branches) for step in _parts_steps(steps)]
    return SHOWN.intersection(*found) if found else _TEXT


def _parts_steps(steps: tuple[Step, ...]) -> list[PartsStep]:
    found: list[PartsStep] = []
    for step in steps:
        if isinstance(step, PartsStep):
            found.append(step)
        elif not isinstance(step, ForStep):
            found += [inner for steps in inside(step) for inner in _parts_steps(steps)]
    return found


def _turns_steps(steps: tuple[Step, ...]) -> list[TurnsStep]:
    found: list[TurnsStep] = []
    for step in steps:
        if isinstance(step, TurnsStep):
            found.append(step)
        for inner in inside(step):
            found += _turns_steps(inner)
    return found


def walks_turns(task: Task) -> bool:
    """True if a step of the task goes through turns."""
    return any(_turns_steps(steps) for steps in lanes(task).values())
