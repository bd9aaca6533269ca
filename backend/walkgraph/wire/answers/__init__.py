"""The service's answers: one declaration for the code that writes them and the code that reads them.

The service derives its response models, and with them the OpenAPI document, from these types
(`service/schemas/answers`); the client exports them as `client.shown`. At run time they are plain dictionaries. Times
are seconds since 1970, durations seconds. A service may add keys.
"""
