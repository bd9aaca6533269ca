"""Blueprints: Walks as components, with nodes of their own. A graph is judged, planned and run without them, as
`flattening` puts a copy of its blueprint in the place of each node that stands for one."""
