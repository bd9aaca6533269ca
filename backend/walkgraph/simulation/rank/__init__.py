"""One process of a rank: the real worker over simulated sockets, a simulated transport and a simulated device."""
