"""What Helm makes of the chart, and the command that writes it where `helm` is installed.

python -m tests.golden.kubernetes
"""

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
CHART = FOLDER.parents[1] / "docker" / "kubernetes"
RENDERED = FOLDER / "kubernetes.yaml"
VALUES: dict[str, Any] = {
    "image": {"name": "registry.example/walkgraph:cluster", "pullSecrets": ["registry"]},
    "checkpoints": "checkpoints",
    "env": {"UCX_NET_DEVICES": "mlx5_0:1"},
    "services": {
        "allowedHosts": ["studio.example"],
        "trustedProxies": ["10.0.0.0/8"],
        "env": {"WALKGRAPH_LOG_LEVEL": "warning"},
    },
    "hosts": [
        {
            "name": "gpu", "count": 2, "cpus": "8", "memory": "64Gi", "sharedMemory": "16Gi", "gpus": 4,
            "nodeSelector": {"accelerator": "h200"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        {"name": "cpu", "count": 1, "cpus": "500m", "memory": "8Gi", "sharedMemory": "1Gi"},
    ],
    "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}]},
}  # fmt: skip
"""Values that use all that the templates can."""


def digest() -> str:
    """The digest of all that the rendered text is made of."""
    found = hashlib.sha256(json.dumps(VALUES).encode())
    for path in sorted(CHART.rglob("*")):
        if path.is_file():
            found.update(f"{path.relative_to(CHART)}\n".encode() + path.read_bytes())
    return found.hexdigest()


def rendered(values: dict[str, Any] = VALUES) -> str:
    words = ("helm", "template", "walkgraph", CHART, "--namespace", "models", "--values", "-")
    return subprocess.run(words, input=json.dumps(values), check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    RENDERED.write_text(f"# {digest()}\n{rendered()}")
