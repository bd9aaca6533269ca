"""Who may call: keys, rates, hosts, the audit."""
