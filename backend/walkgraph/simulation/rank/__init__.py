"""A rank's process: the real worker over simulated sockets, a simulated transport and a simulated device."""
