"""What the service answers: one declaration for those who write the answers and those who read them.

The service makes its response models, and with them the OpenAPI document, from these types (`service/schemas/answers`);
the client shows them as `client.shown`. When a program runs they are plain dictionaries. Times are seconds since 1970,
durations seconds. A service may add keys.
"""
