"""Requests made from the published OpenAPI document, fitted to a service's contents, and judged by the document."""
