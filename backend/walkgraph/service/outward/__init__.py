"""Calls that leave the machine: which servers may be called, with which secrets, and the components that call them."""
