"""The model families, a folder each. None imports another, and loading one loads no other.

    components.py    declarations and sizes; no torch
    config.py        the reader of a checkpoint's config; no torch
    presets.py       configurations that `random:` sources name; no torch
    importing.py     how a checkpoint is recognised, and what it must hold; no torch
    operators.py     what components' `network` names
    weights.py       the loading of the published layout
    and the architecture

Parts shared by several families are in `architectures`, and parts shared by several configs in `checkpoints`.
"""
