"""One file a page: its `page` draws it."""
