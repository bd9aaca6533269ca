"""One file per page; its function `page` draws it."""
