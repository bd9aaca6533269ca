"""Access control: keys, rates, hosts, the audit log."""
