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
import { freshState } from "./NodeForm";

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
        label="Description"
        value={graph.description ?? ""}
        placeholder="What the graph does, for the gallery"
        lines={4}
        live
        onEnter={(text) =>
          apply(
            "Describe the graph",
            (graph) => withKey(graph, "description", text || undefined),
            "graph/description",
          )
        }
      />
      <Section title="Weights" aside={<small>{weights.length}</small>}>
        {weights.map(([name, value]) => (
          <WeightsRecord key={name} name={name} weights={value} families={families} />
        ))}
        <AddField
          label="Add weights"
          placeholder="Add weights: their name"
          onAdd={(name) =>
            apply(`Add the weights ${name}`, (graph) => {
              const family = families.find((known) => name.startsWith(known)) ?? families[0] ?? name;
              return nodes.addWeights(graph, name, { family, source: `checkpoint:${name}` });
            })
          }
        />
      </Section>
      <Section title="States" aside={<small>{states.length}</small>}>
        {states.map(([name, state]) => (
          <StateRecord key={name} name={name} state={state} />
        ))}
        <AddField
          label="Add a state"
          placeholder="Add a state: its name"
          onAdd={(name) =>
            apply(`Add the state ${name}`, (graph) => nodes.addState(graph, name, freshState("paged_kv")))
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
          label="Name"
          value={name}
          onEnter={(to) => apply(`Rename ${what}`, (graph) => rename(graph, to))}
        />
        {kind}
      </div>
      {children}
      <IconButton label={`Remove ${what}`} onClick={() => attempt(`Remove ${what}`, remove)}>
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
    apply(`Set the weights ${name}`, (graph) => nodes.setWeights(graph, name, fields));
  return (
    <Record
      what={`the weights ${name}`}
      name={name}
      rename={(graph, to) => nodes.renameWeights(graph, name, to)}
      remove={(graph) => nodes.removeWeights(graph, name)}
      kind={
        <ChoiceField
          label="Family"
          value={weights.family}
          options={families}
          onChoose={(family) => set({ family })}
        />
      }
    >
      <TextField
        label="Source"
        value={weights.source}
        mono
        hint="checkpoint:NAME, starter:NAME, or random:PRESET:SEED"
        onEnter={(text) =>
          SOURCE.test(text.trim())
            ? set({ source: text.trim() })
            : "Write checkpoint:NAME, starter:NAME, or random:PRESET:SEED."
        }
        problems={problems}
      />
    </Record>
  );
}

const SCOPES: Record<NonNullable<State["scope"]>, string> = {
  session: "session: kept from run to run",
  run: "run: fresh for every request",
  walk: "walk: fresh for every Walk",
  iteration: "iteration: fresh for every pass",
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
    apply(`Set the state ${name}`, (graph) => nodes.setState(graph, name, fields as Partial<State>));
  return (
    <Record
      what={`the state ${name}`}
      name={name}
      rename={(graph, to) => nodes.renameState(graph, name, to)}
      remove={(graph) => nodes.removeState(graph, name)}
      kind={
        <ChoiceField
          label="Kind"
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
        label="Lives for a"
        value={state.scope ?? "run"}
        options={Object.entries(SCOPES).map(([value, label]) => ({ value, label }))}
        onChoose={(value) => set({ scope: value === "run" ? undefined : value })}
        problems={at("scope")}
      />
      <div className="wg-pair">
        <ExpressionField
          label="Sequences"
          value={state.width ?? ""}
          placeholder="1"
          scope={scope}
          onEnter={(text) => set({ width: text || undefined })}
          problems={at("width")}
        />
        {(state.kind === "paged_kv" || state.capacity != null) && (
          <ExpressionField
            label="Most tokens"
            value={state.capacity ?? ""}
            scope={scope}
            onEnter={(text) => set({ capacity: text || undefined })}
            problems={at("capacity")}
          />
        )}
      </div>
      <p className="wg-quiet">
        {users.length ? `Kept by ${users.join(", ")}.` : `No node keeps it yet; bind it to a slot.`}
        {users.length > 4 && ` (${plural(users.length, "node")})`}
      </p>
      <ProblemLines problems={rest} />
    </Record>
  );
}
