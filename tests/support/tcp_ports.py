"""The TCP ports on which a process takes connections."""

import socket
from pathlib import Path


def listening(pid: int) -> list[tuple[str, int]]:
    """(IPv4 address, port) of each, as the kernel tells it."""
    files = {str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()}
    found: list[tuple[str, int]] = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in files:
                address, _, port = local.partition(":")
                # Words of 32 bits in the machine's order; the last one is that of an IPv4 address.
                found.append((socket.inet_ntoa(bytes.fromhex(address[-8:])[::-1]), int(port, 16)))
    return found
