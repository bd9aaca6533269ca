"""A speaker of a few words: how its recordings, its codec and its network are made and measured."""
