"""The hosts of ranks whose placement says `any`."""
