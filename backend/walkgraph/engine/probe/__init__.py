"""Values that are looked at: statistics, digests, previews."""
