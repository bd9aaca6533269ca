// An edge of a Walk: its ends, what happens to the value on the way, and what can be done to it.
import { ArrowDown } from "lucide-react";
import { useMemo } from "react";
import type { Catalogue } from "../../../messages/answers";
import { calledGraph } from "../../../catalogue/catalogue";
import * as edges from "../../../document/edits/edges";
import * as nodes from "../../../document/edits/nodes";
import { portType } from "../../../document/ports";
import { accepts } from "../../../document/typing";
import type { Collect } from "../../../document/names";
import { join } from "../../../document/pointer";
import { factsOf, mapCarrying, mapLeft, routesOf, type Route } from "../../../document/routes";
import type { GraphDocument } from "../../../document/types";
import { useEditorState } from "../../../store/react";
import { placeOfRoute } from "../../../taps/places";
import { TapField } from "../../../taps/TapField";
import { color, modalityOf } from "../../../ui/modality";
import { Glyph, ProblemLines, Removal, Section } from "../../common/bits";
import { useApply, useProblems } from "../../common/apply";
import { ChoiceField } from "../fields/fields";
import { strings } from "../../../strings";

export function EdgeForm({ walk, index }: { walk: string; index: number }) {
  const { attempt, editor } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const catalogue = useEditorState((state) => state.catalogue);
  const problems = useProblems(join("walks", walk, "edges", index));
  const route = routesOf(graph, walk)[index];
  if (!route) return <p className="wg-quiet">{strings.inspector.thisEdgeNoLongerExists}</p>;
  const source = portType(graph, catalogue, walk, route.from, "source");
  const target = portType(graph, catalogue, walk, route.to, "target");
  const place = placeOfRoute(walk, route);
  const remove = () => {
    if (attempt(strings.inspector.removeTheEdge(route.to), (graph) => edges.removeEdges(graph, walk, [index])))
      editor.select();
  };
  return (
    <>
      <div className="wg-ends">
        <End reference={route.from} type={source} />
        <ArrowDown size={14} aria-label={strings.inspector.to2} />
        <End reference={route.to} type={target} />
      </div>
      <ProblemLines problems={problems} />
      <Way walk={walk} route={route} graph={graph} />
      {place && (
        <Section title={strings.inspector.tap}>
          <TapField place={place} />
        </Section>
      )}
      <Insert walk={walk} route={route} graph={graph} catalogue={catalogue} type={source} target={target} />
      <Removal onRemove={remove}>{strings.inspector.removeTheEdge2}</Removal>
    </>
  );
}

function End({ reference, type }: { reference: string; type: string | null }) {
  return (
    <div className="end" style={{ borderLeftColor: type ? color(type) : undefined }}>
      {type && <Glyph type={type} />}
      <strong>{reference}</strong>
      <code>{type ?? strings.inspector.typeNotKnown}</code>
    </div>
  );
}

/** The effect of the loops between its ends. */
function Way({ walk, route, graph }: { walk: string; route: Route; graph: GraphDocument }) {
  const { attempt } = useApply();
  const set = (fields: { each?: boolean; collect?: Collect }) =>
    attempt(strings.inspector.setHowTheEdgeCrosses, (graph) => edges.setEdge(graph, walk, route.index, fields));
  const turn = () =>
    attempt(route.carried ? strings.inspector.sendItForward : strings.inspector.carryItToTheNext, (graph) =>
      route.carried ? edges.makeForward(graph, walk, route.index) : edges.makeCarried(graph, walk, route.index),
    );
  const leaving = route.leave !== "none";
  const entering = route.enter !== "none";
  const facts = factsOf(graph.walks![walk]!);
  const [ofMap, intoMap] = [mapLeft(facts, route), mapLeft(facts, { left: route.entered })];
  const inMap = route.common > 0 && mapCarrying(facts, route) !== null;
  const { entry } = route.source;
  const component = entry?.kind === "use" ? graph.nodes?.[entry.node]?.component : undefined;
  /** The values that a called task sends can go on to the client as they come. */
  const pieces = route.target.kind === "out" && component !== undefined && calledGraph(component) !== null;
  return (
    <Section title={strings.inspector.throughLoops}>
      {route.common > 0 && route.source.kind === "use" && route.target.kind === "use" && (
        <ChoiceField
          label={strings.inspector.arrives}
          value={route.carried ? "carried" : "forward"}
          options={[
            { value: "forward", label: strings.inspector.inTheSameIteration },
            { value: "carried", label: strings.inspector.inTheNextIteration, disabled: inMap },
          ]}
          onChoose={turn}
          hint={route.carried ? strings.inspector.theLoopCarriesTheValue : strings.inspector.theTargetRunsAfter}
        />
      )}
      {leaving && (
        <ChoiceField
          label={strings.inspector.leaving(loops(route.left, ofMap))}
          value={route.leave === "collect" ? optionOf(route.collect) : route.leave}
          options={[
            { value: "last", label: strings.inspector.theLastValue, disabled: ofMap !== null },
            { value: "each", label: strings.inspector.everyValueAsItComes, disabled: route.target.kind !== "out" },
            ...COLLECTS,
          ]}
          onChoose={(leave) =>
            set({
              collect: collectOf(leave),
              ...(route.target.kind === "out" ? { each: leave === "each" } : {}),
            })
          }
          hint={(ofMap === null ? LEAVE : LEAVE_MAP)[route.leave]}
        />
      )}
      {pieces && !leaving && (
        <ChoiceField
          label={strings.inspector.fromTheCalledTask}
          value={route.each ? "each" : "last"}
          options={[
            { value: "last", label: strings.inspector.theWholeAtItsEnd },
            { value: "each", label: strings.inspector.everyValueAsItComes },
          ]}
          onChoose={(leave) => set({ each: leave === "each" })}
        />
      )}
      {entering && (
        <ChoiceField
          label={strings.inspector.entering(loops(route.entered, intoMap))}
          value={route.enter === "each" ? "each" : "held"}
          options={[
            {
              value: "held",
              label:
                route.enter === "first"
                  ? strings.inspector.theFirstIterationOnly
                  : intoMap === null
                    ? strings.inspector.heldForEveryIteration
                    : strings.inspector.heldForEveryItem,
            },
            {
              value: "each",
              label: intoMap === null ? strings.inspector.oneSliceAnIteration : strings.inspector.itemByItem,
            },
          ]}
          onChoose={(enter) => set({ each: enter === "each" })}
          hint={(intoMap === null ? ENTER : ENTER_MAP)[route.enter]}
        />
      )}
      {route.common === 0 && !leaving && !entering && <p className="wg-quiet">{strings.inspector.itCrossesNoLoop}</p>}
    </Section>
  );
}

const COLLECTED: Record<string, string> = { true: "stack", join: "join", list: "list" };
export const COLLECTS = [
  { value: "stack", label: strings.inspector.allValuesStacked },
  { value: "join", label: strings.inspector.allValuesJoined },
  { value: "list", label: strings.inspector.allValuesAsAList },
];

/** The value that an option of `COLLECTS` writes; false for any other. */
export function collectOf(option: string): Collect {
  return option === "stack" ? true : option === "join" || option === "list" ? option : false;
}

/** The option of a way to collect; `last` for none. */
export function optionOf(collect: Collect): string {
  return COLLECTED[String(collect)] ?? "last";
}

const LEAVE = {
  none: "",
  last: strings.inspector.theValueOfTheLast,
  each: strings.inspector.theClientGetsEachIterations,
  collect: strings.inspector.oneValueWithAllIterations,
};
const ENTER = {
  none: "",
  held: strings.inspector.everyIterationGetsTheSame,
  first: strings.inspector.thePortAlsoHas,
  each: strings.inspector.iterationIGetsSliceI,
};

const LEAVE_MAP = {
  none: "",
  last: strings.inspector.aMapHasNoLastValue,
  each: strings.inspector.theClientGetsEachItems,
  collect: strings.inspector.oneValueOfAllItems,
};
const ENTER_MAP = {
  ...ENTER,
  held: strings.inspector.everyItemGetsTheSame,
  each: strings.inspector.itemIGetsItemI,
};

/** `map`: one of them that is a map. */
function loops(names: readonly string[], map: string | null): string {
  if (names.length === 1 && map !== null) return strings.inspector.theMap(map);
  return names.length === 1 ? strings.inspector.theLoop(names[0]) : strings.inspector.theLoops(names.join(", "));
}

interface InsertProps {
  walk: string;
  route: Route;
  graph: GraphDocument;
  catalogue: Catalogue;
  type: string | null;
  target: string | null;
}

function Insert({ walk, route, graph, catalogue, type, target }: InsertProps) {
  const { attempt, editor } = useApply();
  const fitting = useMemo(() => between(graph, catalogue, type, target), [graph, catalogue, type, target]);
  if (fitting.length === 0) return null;
  const insert = (value: string) => {
    let made = "";
    const [kind, name = ""] = value.split(/:(.*)/s, 2);
    const done = attempt(strings.inspector.insert(name), (graph) => {
      const added = kind === "component" ? nodes.addNode(graph, name) : { graph, name };
      const inserted = edges.insertOnEdge(added.graph, walk, route.index, added.name, catalogue);
      made = inserted.id;
      return inserted.graph;
    });
    if (done) editor.select(made);
  };
  return (
    <ChoiceField
      label={strings.inspector.insertBetweenThem}
      value=""
      options={[{ value: "", label: strings.inspector.chooseAComponent }, ...fitting]}
      onChoose={(value) => value && insert(value)}
      hint={type ? strings.inspector.takesAndGives(modalityOf(type)) : undefined}
    />
  );
}

/** Nodes, then components, that take the one type and give the other. */
export function between(
  graph: GraphDocument,
  catalogue: Catalogue,
  type: string | null,
  target: string | null,
): { value: string; label: string }[] {
  if (type === null) return [];
  const fits = (name: string) => {
    const component = catalogue[name];
    return (
      component !== undefined &&
      component.inputs.some((port) => accepts(port.type, type) === null) &&
      component.outputs.some((port) => accepts(target ?? type, port.type) === null)
    );
  };
  const existing = Object.entries(graph.nodes ?? {}).filter(([, node]) => fits(node.component));
  return [
    ...existing.map(([name]) => ({ value: `node:${name}`, label: strings.inspector.again(name) })),
    ...Object.keys(catalogue)
      .filter(fits)
      .map((name) => ({ value: `component:${name}`, label: strings.inspector.new(name) })),
  ];
}
