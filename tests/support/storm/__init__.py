"""Requests made from the published OpenAPI document, fitted to what a service has, and judged by what it publishes."""
