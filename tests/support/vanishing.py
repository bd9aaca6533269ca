"""Clients that vanish: their machine is there no more, so that it sends no end, no reset and no acknowledgement."""

from __future__ import annotations

import ctypes
import socket
import struct

SO_ATTACH_FILTER = 26
_RETURN = struct.Struct("HBBI").pack(0x06, 0, 0, 0)
"""A filter of one instruction: return 0, the bytes of a packet that are let in."""


def vanish(connection: socket.socket) -> None:
    """From now on the kernel drops whatever comes for it, before it is acknowledged. Don't close it while it is to be
    gone: that would be told."""
    program = ctypes.create_string_buffer(_RETURN)
    connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))
