// A component node: what it is, its parameters, weights and states.
import { useMemo } from "react";
import type { Component, Problem, StateSlot } from "../../../messages/answers";
import { calledGraph, editorOf, familyOf, stateKindText } from "../../../catalogue/catalogue";
import { freshName } from "../../../document/names";
import * as nodes from "../../../document/edits/nodes";
import { join } from "../../../document/pointer";
import { declaredFor } from "../../../document/ports";
import { factsOf } from "../../../document/routes";
import type { GraphDocument, Node } from "../../../document/types";
import { walksOf } from "../../../document/union";
import type { Editor } from "../../../store/editor";
import { useEditorState } from "../../../store/react";
import { Button, Prose } from "../../../ui/kit";
import { plural } from "../../../ui/words";
import { facts, Ports, ProblemLines, Section, UNAVAILABLE } from "../../common/bits";
import { Examples } from "../../common/Examples";
import { scopeOfNode } from "../../common/scope";
import { useApply, useProblems } from "../../common/apply";
import { ChoiceField, NameField } from "../fields/fields";
import { ParamField } from "../fields/ParamField";
import { strings } from "../../../strings";

interface NodeFormProps {
  name: string;
  /** It is shown for a use, and a change is one for all of them. */
  shared?: boolean;
  onRename: (to: string) => void;
}

export function NodeForm({ name, shared = false, onRename }: NodeFormProps) {
  const { apply, attempt } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const catalogue = useEditorState((state) => state.catalogue);
  const node = graph.nodes?.[name];
  const walks = useMemo(() => walksOf(graph, name), [graph, name]);
  const own = useProblems(join("nodes", name), true).filter((problem) => !isMissingWeights(problem));
  const wrong = useProblems(join("nodes", name, "component"));
  if (!node) return <p className="wg-quiet">{strings.inspector.thereIsNoComponentNode(name)}</p>;
  const component = declaredFor(catalogue, node);
  const rename = (to: string) => {
    const refused = apply(strings.inspector.rename(name), (graph) => nodes.renameNode(graph, name, to));
    if (refused === null) onRename(to);
    return refused;
  };
  return (
    <>
      {shared && walks.length > 1 && (
        <p className="wg-quiet">
          {strings.inspector.theseSettingsApplyToAll(plural(walks.length, strings.inspector.walk))}
        </p>
      )}
      <NameField label={strings.inspector.name} value={name} onEnter={rename} problems={own} />
      <ChoiceField
        label={strings.inspector.component2}
        value={node.component}
        options={alternatives(catalogue, node.component)}
        onChoose={(to) =>
          attempt(strings.inspector.make(name, to), (graph) => nodes.setNodeComponent(graph, name, to, catalogue))
        }
        hint={<Prose text={component?.description ?? strings.inspector.itIsNotInTheCatalogue} />}
        problems={wrong.filter((problem) => problem.code !== "component_unavailable")}
      />
      {component && !component.available && <p className="wg-unavailable">{UNAVAILABLE}</p>}
      {component && <p className="wg-facts">{facts(component).join(" · ")}</p>}
      <Called component={node.component} own={graph.name} />
      <Params name={name} node={node} component={component} />
      {component?.weights && <WeightsField name={name} node={node} component={component} graph={graph} />}
      <States name={name} node={node} component={component} graph={graph} />
      {(component?.deterministic || node.kept) && <KeptField name={name} node={node} />}
      {component && (
        <Section title={strings.inspector.ports} open={false}>
          <Ports component={component} />
        </Section>
      )}
      {component && (component.examples ?? []).length > 0 && (
        <Section title={strings.inspector.examples} open={false}>
          <Examples component={component} />
        </Section>
      )}
      <UsedIn name={name} walks={walks} />
    </>
  );
}

/** The way to the graph whose task a node calls. */
function Called({ component, own }: { component: string; own: string }) {
  const graph = calledGraph(component);
  if (graph === null || graph === own) return null;
  return (
    <p className="wg-facts">
      <a href={editorOf(graph)} target="_blank" rel="noreferrer">
        {strings.inspector.openTheGraph(graph)}
      </a>
    </p>
  );
}

function alternatives(catalogue: Readonly<Record<string, Component>>, current: string): string[] {
  const family = familyOf(current);
  return Object.keys(catalogue).sort(
    (a, b) => Number(familyOf(b) === family) - Number(familyOf(a) === family) || a.localeCompare(b),
  );
}

function Params({ name, node, component }: { name: string; node: Node; component: Component | null }) {
  const { apply, attempt } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const scope = useMemo(() => scopeOfNode(graph, name), [graph, name]);
  const problems = useProblems(join("nodes", name, "params"));
  const at = (param: string) =>
    problems.filter((problem) => problem.pointer === join("nodes", name, "params", param));
  const missing = problems.filter((problem) => problem.pointer === join("nodes", name, "params"));
  const declared = Object.entries(component?.params ?? {});
  const extra = Object.keys(node.params ?? {}).filter((param) => !component || !(param in component.params));
  if (declared.length + extra.length === 0) return null;
  return (
    <Section title={strings.inspector.parameters}>
      <ProblemLines problems={missing} />
      {declared.map(([param, declaration]) => (
        <ParamField
          key={param}
          name={param}
          declared={declaration}
          value={node.params?.[param]}
          scope={scope}
          problems={at(param)}
          onEnter={(value) =>
            apply(strings.inspector.set(name, param), (graph) => nodes.setNodeParam(graph, name, param, value))
          }
        />
      ))}
      {extra.map((param) => (
        <div key={param} className="wg-extra">
          <code>
            {param} = {String(node.params?.[param])}
          </code>
          <Button
            kind="quiet"
            onClick={() =>
              attempt(strings.inspector.removeWithParam(name, param), (graph) =>
                nodes.setNodeParam(graph, name, param, undefined),
              )
            }
          >
            {strings.inspector.remove2}
          </Button>
          <ProblemLines problems={at(param)} />
        </div>
      ))}
    </Section>
  );
}

const NEW = " new";
/** Before the family, in the value of an option. */
const NEW_OF = " new ";

interface BindingProps {
  name: string;
  node: Node;
  graph: GraphDocument;
}

function WeightsField({ name, node, component, graph }: BindingProps & { component: Component }) {
  const { attempt } = useApply();
  const missing = useProblems(join("nodes", name), true).filter(isMissingWeights);
  const wrong = useProblems(join("nodes", name, "weights"));
  const absent = useProblems(join("weights", node.weights ?? "", "source"));
  const choose = (key: string) =>
    attempt(strings.inspector.setTheWeightsWithName(name), (graph) => {
      if (!key.startsWith(NEW_OF)) return nodes.setNodeWeights(graph, name, key || null);
      const family = key.slice(NEW_OF.length);
      const made = freshName(family, Object.keys(graph.weights ?? {}));
      const added = nodes.addWeights(graph, made, { family, source: `checkpoint:${family}` });
      return nodes.setNodeWeights(added, name, made);
    });
  const { families } = component;
  return (
    <Section title={strings.inspector.weights}>
      <ChoiceField
        label={
          families.length === 1
            ? strings.inspector.weightsOfTheFamily(families[0])
            : strings.inspector.weightsOfAnyOfThese
        }
        value={node.weights ?? ""}
        options={weightsOptions(graph, node.weights, component)}
        onChoose={choose}
        problems={[...missing, ...wrong, ...absent]}
      />
    </Section>
  );
}

/** It stands at the node, which lacks the key. */
function isMissingWeights({ code }: Problem): boolean {
  return code === "missing_weights";
}

/** The entries that fit, the one that is chosen where it doesn't, and new ones of each family. */
export function weightsOptions(
  graph: GraphDocument,
  chosen: string | null | undefined,
  component: Component,
): { value: string; label: string }[] {
  const sourced = (key: string) => `${key} (${graph.weights?.[key]?.source ?? strings.inspector.notInTheGraph})`;
  const fitting = nodes.fittingWeights(graph, component);
  const unfit = chosen != null && !fitting.includes(chosen) ? [chosen] : [];
  return [
    { value: "", label: strings.inspector.none },
    ...[...fitting, ...unfit].map((key) => ({ value: key, label: sourced(key) })),
    ...component.families.map((family) => ({ value: NEW_OF + family, label: strings.inspector.newWeights(family) })),
  ];
}

function States({ name, node, component, graph }: BindingProps & { component: Component | null }) {
  const problems = useProblems(join("nodes", name, "states"), true);
  const slots = component?.states ?? [];
  const extra = Object.keys(node.states ?? {}).filter((slot) => !slots.some((known) => known.slot === slot));
  if (slots.length + extra.length === 0) return null;
  return (
    <Section title={strings.inspector.states}>
      <ProblemLines problems={problems} />
      {slots.map((slot) => (
        <SlotField key={slot.slot} name={name} node={node} graph={graph} slot={slot} />
      ))}
      {extra.map((slot) => (
        <SlotField key={slot} name={name} node={node} graph={graph} slot={slot} />
      ))}
    </Section>
  );
}

function SlotField({ name, node, graph, slot: declared }: BindingProps & { slot: StateSlot | string }) {
  const { attempt } = useApply();
  const slot = typeof declared === "string" ? declared : declared.slot;
  const problems = useProblems(join("nodes", name, "states", slot));
  const kind = typeof declared === "string" ? null : declared.kind;
  const fitting = Object.entries(graph.states ?? {}).filter(([, state]) => state.kind === kind);
  const choose = (key: string) =>
    attempt(strings.inspector.bind(name, slot), (graph) => {
      if (key !== NEW) return nodes.setNodeState(graph, name, slot, key || null);
      const made = freshName(name, Object.keys(graph.states ?? {}));
      return nodes.setNodeState(nodes.addState(graph, made, nodes.freshState(kind!)), name, slot, made);
    });
  const optional = typeof declared === "string" || declared.optional;
  return (
    <ChoiceField
      label={slot}
      value={node.states?.[slot] ?? ""}
      options={[
        { value: "", label: optional ? strings.inspector.none : strings.inspector.chooseOne },
        ...fitting.map(([key, state]) => ({ value: key, label: `${key} (${state.scope ?? "run"})` })),
        ...(kind ? [{ value: NEW, label: strings.inspector.newState }] : []),
      ]}
      onChoose={choose}
      hint={kind ? strings.inspector.aKeptBetweenCalls(stateKindText(kind)) : strings.inspector.theComponentHasNoSuch}
      problems={problems}
    />
  );
}

function KeptField({ name, node }: { name: string; node: Node }) {
  const { attempt } = useApply();
  const problems = useProblems(join("nodes", name, "kept"));
  const choose = (kept: string) =>
    attempt(strings.inspector.keepTheResultsOf(name), (graph) =>
      nodes.setNodeKept(graph, name, kept === "" ? null : (kept as Node["kept"])),
    );
  return (
    <ChoiceField
      label={strings.inspector.keepResults}
      value={node.kept ?? ""}
      options={[
        { value: "", label: strings.inspector.no },
        { value: "own", label: strings.inspector.forRunsOfTheSameKey },
        { value: "shared", label: strings.inspector.forAllRuns },
      ]}
      onChoose={choose}
      hint={strings.inspector.theSameInputsAreNot}
      problems={problems}
    />
  );
}

function UsedIn({ name, walks }: { name: string; walks: readonly string[] }) {
  const { editor } = useApply();
  return (
    <Section
      title={strings.inspector.used3}
      aside={<small>{plural(walks.length, strings.inspector.walk)}</small>}
      open={walks.length < 5}
    >
      {walks.length === 0 && <p className="wg-quiet">{strings.inspector.noWalkUsesItYet}</p>}
      <div className="wg-links">
        {walks.map((walk) => (
          <Button key={walk} kind="quiet" onClick={() => openUses(editor, walk, name)}>
            {walk}
          </Button>
        ))}
      </div>
    </Section>
  );
}

function openUses(editor: Editor, walk: string, node: string): void {
  const uses = factsOf(editor.graph.walks![walk]!).list.filter(
    (entry) => entry.kind === "use" && entry.node === node,
  );
  editor.open(
    { kind: "walk", walk, inside: null },
    uses.map((entry) => entry.id),
  );
}
