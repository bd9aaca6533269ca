"""What must survive a restart: documents and their versions, wanted deployments, finished runs."""
