// The graph as a whole: what it is for, the weights it loads, the states its nodes keep.
import { Trash2 } from "lucide-react";
import { useMemo, type ReactNode } from "react";
import * as nodes from "../../../document/edits/nodes";
import { withKey } from "../../../document/edits/parts/records";
import { join } from "../../../document/pointer";
import type { GraphDocument, State, Weights } from "../../../document/types";
import { stateKindText } from "../../../catalogue/catalogue";
import { useEditorState } from "../../../store/react";
import { IconButton } from "../../../ui/kit";
import { plural } from "../../../ui/words";
import { ProblemLines, Section } from "../../common/bits";
import { scopeOfStates } from "../../common/scope";
import { useApply, useProblems } from "../../common/apply";
import { AddField, ChoiceField, ExpressionField, NameField, TextField } from "../fields/fields";
import { strings } from "../../../strings";

export function GraphForm() {
  const { apply } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const catalogue = useEditorState((state) => state.catalogue);
  const families = useMemo(
    () => [...new Set(Object.values(catalogue).flatMap((component) => component.families))].sort(),
    [catalogue],
  );
  const weights = Object.entries(graph.weights ?? {});
  const states = Object.entries(graph.states ?? {});
  return (
    <>
      <TextField
        label={strings.inspector.description}
        value={graph.description ?? ""}
        placeholder={strings.inspector.whatTheGraphDoes}
        lines={4}
        live
        onEnter={(text) =>
          apply(
            strings.inspector.describeTheGraph,
            (graph) => withKey(graph, "description", text || undefined),
            "graph/description",
          )
        }
      />
      <Section title={strings.inspector.weights} aside={<small>{weights.length}</small>}>
        {weights.map(([name, value]) => (
          <WeightsRecord key={name} name={name} weights={value} families={families} />
        ))}
        <AddField
          label={strings.inspector.addWeights}
          placeholder={strings.inspector.addWeightsTheirName}
          onAdd={(name) =>
            apply(strings.inspector.addTheWeights(name), (graph) => {
              const family = families.find((known) => name.startsWith(known)) ?? families[0] ?? name;
              return nodes.addWeights(graph, name, { family, source: `checkpoint:${name}` });
            })
          }
        />
      </Section>
      <Section title={strings.inspector.states} aside={<small>{states.length}</small>}>
        {states.map(([name, state]) => (
          <StateRecord key={name} name={name} state={state} />
        ))}
        <AddField
          label={strings.inspector.addAState}
          placeholder={strings.inspector.addAStateItsName}
          onAdd={(name) =>
            apply(strings.inspector.addTheState(name), (graph) =>
              nodes.addState(graph, name, nodes.freshState("paged_kv")),
            )
          }
        />
      </Section>
    </>
  );
}

const SOURCE = /^(starter:[\w.-]+|checkpoint:[\w.-]+|random:[\w.-]+:\d+)$/;

interface RecordProps {
  /** In words: `the state kv`. */
  what: string;
  name: string;
  rename: (graph: GraphDocument, to: string) => GraphDocument;
  remove: (graph: GraphDocument) => GraphDocument;
  /** Its kind, beside its name. */
  kind: ReactNode;
  children: ReactNode;
}

function Record({ what, name, rename, remove, kind, children }: RecordProps) {
  const { apply, attempt } = useApply();
  return (
    <div className="wg-record">
      <div className="wg-pair">
        <NameField
          label={strings.inspector.name}
          value={name}
          onEnter={(to) => apply(strings.inspector.rename(what), (graph) => rename(graph, to))}
        />
        {kind}
      </div>
      {children}
      <IconButton
        label={strings.inspector.remove(what)}
        onClick={() => attempt(strings.inspector.remove(what), remove)}
      >
        <Trash2 size={14} />
      </IconButton>
    </div>
  );
}

interface WeightsProps {
  name: string;
  weights: Weights;
  families: readonly string[];
}

function WeightsRecord({ name, weights, families }: WeightsProps) {
  const { apply } = useApply();
  const problems = useProblems(join("weights", name));
  const set = (fields: Partial<Weights>) =>
    apply(strings.inspector.setTheWeights(name), (graph) => nodes.setWeights(graph, name, fields));
  return (
    <Record
      what={strings.inspector.theWeights(name)}
      name={name}
      rename={(graph, to) => nodes.renameWeights(graph, name, to)}
      remove={(graph) => nodes.removeWeights(graph, name)}
      kind={
        <ChoiceField
          label={strings.inspector.family}
          value={weights.family}
          options={families}
          onChoose={(family) => set({ family })}
        />
      }
    >
      <TextField
        label={strings.inspector.source}
        value={weights.source}
        mono
        hint={strings.inspector.checkpointNameStarterName}
        onEnter={(text) =>
          SOURCE.test(text.trim()) ? set({ source: text.trim() }) : strings.inspector.writeCheckpointNameStarterName
        }
        problems={problems}
      />
    </Record>
  );
}

const SCOPES: Record<NonNullable<State["scope"]>, string> = {
  session: strings.inspector.sessionKeptFromRun,
  run: strings.inspector.runFreshForEveryRequest,
  walk: strings.inspector.walkFreshForEveryWalk,
  iteration: strings.inspector.iterationFreshForEveryPass,
};

function StateRecord({ name, state }: { name: string; state: State }) {
  const { apply } = useApply();
  const graph = useEditorState((known) => known.documents.graph);
  const scope = useMemo(() => scopeOfStates(graph), [graph]);
  const problems = useProblems(join("states", name));
  const users = Object.entries(graph.nodes ?? {})
    .filter(([, node]) => Object.values(node.states ?? {}).includes(name))
    .map(([node]) => node);
  const at = (key: string) => problems.filter((problem) => problem.pointer === join("states", name, key));
  const rest = problems.filter((problem) => !["width", "capacity", "scope"].some((key) => at(key).includes(problem)));
  const set = (fields: Partial<Record<keyof State, unknown>>) =>
    apply(strings.inspector.setTheState(name), (graph) => nodes.setState(graph, name, fields as Partial<State>));
  return (
    <Record
      what={strings.inspector.theState(name)}
      name={name}
      rename={(graph, to) => nodes.renameState(graph, name, to)}
      remove={(graph) => nodes.removeState(graph, name)}
      kind={
        <ChoiceField
          label={strings.inspector.kind}
          value={state.kind}
          options={(["paged_kv", "tensor", "rng"] as const).map((kind) => ({
            value: kind,
            label: stateKindText(kind),
          }))}
          onChoose={(kind) => set({ kind, capacity: kind === "paged_kv" ? (state.capacity ?? "4096") : undefined })}
        />
      }
    >
      <ChoiceField
        label={strings.inspector.lives}
        value={state.scope ?? "run"}
        options={Object.entries(SCOPES).map(([value, label]) => ({ value, label }))}
        onChoose={(value) => set({ scope: value === "run" ? undefined : value })}
        problems={at("scope")}
      />
      <div className="wg-pair">
        <ExpressionField
          label={strings.inspector.sequences}
          value={state.width ?? ""}
          placeholder="1"
          scope={scope}
          onEnter={(text) => set({ width: text || undefined })}
          problems={at("width")}
        />
        {(state.kind === "paged_kv" || state.capacity != null) && (
          <ExpressionField
            label={strings.inspector.mostTokens}
            value={state.capacity ?? ""}
            scope={scope}
            onEnter={(text) => set({ capacity: text || undefined })}
            problems={at("capacity")}
          />
        )}
      </div>
      <p className="wg-quiet">
        {users.length ? strings.inspector.used(users.join(", ")) : strings.inspector.noNodeUsesItYet}
        {users.length > 4 && ` (${plural(users.length, "node")})`}
      </p>
      <ProblemLines problems={rest} />
    </Record>
  );
}
