// An edge of a Walk: its ends, what happens to the value on the way, and what can be done to it.
import { ArrowDown } from "lucide-react";
import { useMemo } from "react";
import type { Catalogue } from "../../../messages/answers";
import * as edges from "../../../document/edits/edges";
import * as nodes from "../../../document/edits/nodes";
import { accepts, portType } from "../../../document/ports";
import { join } from "../../../document/pointer";
import { routesOf, type Route } from "../../../document/routes";
import type { GraphDocument } from "../../../document/types";
import { useEditorState } from "../../../store/react";
import { placeOfRoute } from "../../../taps/places";
import { TapField } from "../../../taps/TapField";
import { color, modalityOf } from "../../../ui/modality";
import { Glyph, ProblemLines, Removal, Section } from "../../common/bits";
import { useApply, useProblems } from "../../common/apply";
import { ChoiceField } from "../fields/fields";

export function EdgeForm({ walk, index }: { walk: string; index: number }) {
  const { attempt, editor } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const catalogue = useEditorState((state) => state.catalogue);
  const problems = useProblems(join("walks", walk, "edges", index));
  const route = routesOf(graph, walk)[index];
  if (!route) return <p className="wg-quiet">This edge is gone.</p>;
  const source = portType(graph, catalogue, walk, route.from, "source");
  const target = portType(graph, catalogue, walk, route.to, "target");
  const place = placeOfRoute(walk, route);
  const remove = () => {
    if (attempt(`Remove the edge to ${route.to}`, (graph) => edges.removeEdges(graph, walk, [index])))
      editor.select();
  };
  return (
    <>
      <div className="wg-ends">
        <End reference={route.from} type={source} />
        <ArrowDown size={14} aria-label="to" />
        <End reference={route.to} type={target} />
      </div>
      <ProblemLines problems={problems} />
      <Way walk={walk} route={route} />
      {place && (
        <Section title="Tap">
          <TapField place={place} />
        </Section>
      )}
      <Insert walk={walk} route={route} graph={graph} catalogue={catalogue} type={source} target={target} />
      <Removal onRemove={remove}>Remove the edge</Removal>
    </>
  );
}

function End({ reference, type }: { reference: string; type: string | null }) {
  return (
    <div className="end" style={{ borderLeftColor: type ? color(type) : undefined }}>
      {type && <Glyph type={type} />}
      <strong>{reference}</strong>
      <code>{type ?? "type not known"}</code>
    </div>
  );
}

/** What happens between the loops of its ends. */
function Way({ walk, route }: { walk: string; route: Route }) {
  const { attempt } = useApply();
  const set = (fields: { each?: boolean; collect?: boolean }) =>
    attempt("Set how the edge crosses its loops", (graph) => edges.setEdge(graph, walk, route.index, fields));
  const turn = () =>
    attempt(route.carried ? "Send it forward" : "Carry it to the next iteration", (graph) =>
      route.carried ? edges.makeForward(graph, walk, route.index) : edges.makeCarried(graph, walk, route.index),
    );
  const leaving = route.leave !== "none";
  const entering = route.enter !== "none";
  return (
    <Section title="On the way">
      {route.common > 0 && route.source.kind === "use" && route.target.kind === "use" && (
        <ChoiceField
          label="Arrives"
          value={route.carried ? "carried" : "forward"}
          options={[
            { value: "forward", label: "in the same iteration" },
            { value: "carried", label: "in the next iteration" },
          ]}
          onChoose={turn}
          hint={
            route.carried
              ? "The loop carries the value around; the first iteration needs another edge or does without."
              : "The target runs after the source and takes its value at once."
          }
        />
      )}
      {leaving && (
        <ChoiceField
          label={`Leaving ${loops(route.left)}`}
          value={route.leave}
          options={[
            { value: "last", label: "the last value" },
            { value: "each", label: "every value as it comes", disabled: route.target.kind !== "out" },
            { value: "collect", label: "all values, stacked" },
          ]}
          onChoose={(leave) =>
            set({
              collect: leave === "collect",
              ...(route.target.kind === "out" ? { each: leave === "each" } : {}),
            })
          }
          hint={LEAVE[route.leave]}
        />
      )}
      {entering && (
        <ChoiceField
          label={`Entering ${loops(route.entered)}`}
          value={route.enter === "each" ? "each" : "held"}
          options={[
            {
              value: "held",
              label: route.enter === "first" ? "the first iteration only" : "held for every iteration",
            },
            { value: "each", label: "one slice an iteration" },
          ]}
          onChoose={(enter) => set({ each: enter === "each" })}
          hint={ENTER[route.enter]}
        />
      )}
      {route.common === 0 && !leaving && !entering && <p className="wg-quiet">Straight: it crosses no loop.</p>}
    </Section>
  );
}

const LEAVE = {
  none: "",
  last: "What the last iteration gave. Every value as it comes is for outputs to the client only.",
  each: "The client gets each iteration's value when it is there.",
  collect: "One value with all iterations along its first axis, when the loop is over.",
};
const ENTER = {
  none: "",
  held: "Every iteration gets the same value.",
  first: "The port also has a carried edge: that feeds all iterations but the first.",
  each: "Iteration i gets slice i of the first axis; of a stream, its chunk i.",
};

function loops(names: readonly string[]): string {
  return names.length === 1 ? `the loop ${names[0]}` : `the loops ${names.join(", ")}`;
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
    const done = attempt(`Insert ${name}`, (graph) => {
      const added = kind === "component" ? nodes.addNode(graph, name) : { graph, name };
      const inserted = edges.insertOnEdge(added.graph, walk, route.index, added.name, catalogue);
      made = inserted.id;
      return inserted.graph;
    });
    if (done) editor.select(made);
  };
  return (
    <ChoiceField
      label="Insert between them"
      value=""
      options={[{ value: "", label: "choose what…" }, ...fitting]}
      onChoose={(value) => value && insert(value)}
      hint={type ? `Takes and gives ${modalityOf(type)}.` : undefined}
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
    ...existing.map(([name]) => ({ value: `node:${name}`, label: `${name} (again)` })),
    ...Object.keys(catalogue)
      .filter(fits)
      .map((name) => ({ value: `component:${name}`, label: `new ${name}` })),
  ];
}
