"""Places for taps and breakpoints in a plan, and the runs that must be stepped for them."""

from collections.abc import Iterable

from walkgraph.ids import RunId
from walkgraph.placement.compiler.ends import named_source, source_of, target_of
from walkgraph.placement.tables import EdgePlan, Itinerary, Plan, WalkPlan
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Break, Tap

_INPUT = "@in."


class Places:
    """Sources of values and uses, by the document's names. A Walk and its chunked twin count as one."""

    def __init__(self, plan: Plan) -> None:
        self._sources: dict[str, dict[str, bool]] = {}
        """Walk -> source -> True if it lies in a device loop."""
        self._edges: dict[str, dict[tuple[str, str], bool]] = {}
        """Walk -> (source, target) of an edge -> True if both ends lie in one device loop. Values that leave a loop are
        seen outside it."""
        self._uses: dict[str, dict[str, bool]] = {}
        self._loops: dict[str, set[str]] = {}
        """Walk -> uses inside a loop."""
        for walk in plan.walks:
            if not walk.name.startswith("move:"):
                self._add(walk)

    @property
    def walks(self) -> Iterable[str]:
        return self._uses.keys()

    def sources(self, walk: str) -> Iterable[str]:
        """`use.port` of each output that an edge or a stream reads, `@in.name` of each input."""
        return self._sources.get(walk, {}).keys()

    def targets(self, walk: str, source: str) -> Iterable[str]:
        """Targets of the edges from a source."""
        return [target for one, target in self._edges.get(walk, {}) if one == source]

    def uses(self, walk: str) -> Iterable[str]:
        return self._uses.get(walk, {}).keys()

    def in_loop(self, walk: str, use: str) -> bool:
        return use in self._loops.get(walk, ())

    def has(self, place: Tap | Break) -> bool:
        if isinstance(place, Tap) and place.to:
            return place.to in self.targets(place.walk, place.source)
        if isinstance(place, Tap):
            return place.source in self._sources.get(place.walk, {})
        known = place.use in self._uses.get(place.walk, {})
        return known and (place.iteration is None or self.in_loop(place.walk, place.use))

    def inside(self, place: Tap | Break) -> bool:
        """True if only stepped runs can be seen there."""
        if isinstance(place, Tap) and place.to:
            return self._edges.get(place.walk, {}).get((place.source, place.to), False)
        if isinstance(place, Tap):
            return self._sources.get(place.walk, {}).get(place.source, False)
        return self._uses.get(place.walk, {}).get(place.use, False)

    def _add(self, walk: WalkPlan) -> None:
        cores = [frozenset(loop.core) for loop in walk.loops if loop.resident]
        core = frozenset[int]().union(*cores)
        uses = self._uses.setdefault(walk.name, {})
        sources = self._sources.setdefault(walk.name, {_INPUT + name: False for name in walk.inputs})
        for use in walk.uses:
            if use.op == "call":
                uses[use.name] = uses.get(use.name, False) or use.index in core
                if use.loops:
                    self._loops.setdefault(walk.name, set()).add(use.name)
        for edge in walk.edges:
            if edge.source.kind == "use" and walk.uses[edge.source.use].op == "call":
                name = source_of(walk, edge)
                sources[name] = sources.get(name, False) or edge.source.use in core
                self._add_edge(walk, edge, cores)

    def _add_edge(self, walk: WalkPlan, edge: EdgePlan, cores: Iterable[frozenset[int]]) -> None:
        ends, target = {edge.source.use, edge.target.use}, target_of(walk, edge)
        if target:
            edges = self._edges.setdefault(walk.name, {})
            place = named_source(walk, edge), target
            edges[place] = edges.get(place, False) or any(ends <= core for core in cores)


class Watching:
    """The taps and breakpoints that the service has set."""

    def __init__(self, plan: Plan) -> None:
        self.watch: m.Watch | None = None
        """The last message; None until one came, while the spec's level applies."""
        self._walks = tuple(walk.name for walk in plan.walks)
        self._places = Places(plan)

    def steps(self, run: RunId, itinerary: Itinerary) -> bool:
        """True if a run that starts now must be stepped for a tap or breakpoint."""
        if self.watch is None:
            return False
        walks = {self._walks[walk] for walk in itinerary.walks}
        places = (*self.watch.taps, *self.watch.breaks)
        return any(p.walk in walks and p.run in (None, run) and self._places.inside(p) for p in places)
