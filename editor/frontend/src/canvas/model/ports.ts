// The ports of nodes as the canvas shows them: those declared, and those that only an edge names. Pure.
import type { Catalogue, Port } from "../../messages/answers";
import { color } from "../../ui/modality";
import { declaredFor } from "../../document/ports";
import type { GraphDocument, Node } from "../../document/types";
import type { PortShown, StateShown } from "../shapes/types";

export function owner(reference: string): string {
  return reference.slice(0, Math.max(reference.indexOf("."), 0));
}

export function portName(reference: string): string {
  return reference.slice(reference.indexOf(".") + 1);
}

export function shown(port: Port, name: string): PortShown {
  return {
    ref: `${name}.${port.name}`,
    name: port.name,
    type: port.type,
    optional: port.optional,
    wired: false,
    ghost: false,
    mark: null,
    description: port.description,
  };
}

export function bare(ref: string, type: string, fields: Partial<PortShown> = {}): PortShown {
  return {
    ref,
    name: portName(ref),
    type,
    optional: true,
    wired: false,
    ghost: false,
    mark: null,
    description: "",
    ...fields,
  };
}

/** The ports on one side of a use: the declared ones, then those that only edges name. */
export function side(declared: readonly Port[], name: string, wired: ReadonlySet<string>): PortShown[] {
  const ports = declared.map((port) => shown(port, name));
  for (const port of ports) port.wired = wired.has(port.ref);
  const known = new Set(ports.map((port) => port.ref));
  const ghosts = [...wired].filter((ref) => owner(ref) === name && !known.has(ref));
  return [...ports, ...ghosts.map((ref) => bare(ref, "", { wired: true, ghost: true }))];
}

export function declaredPorts(catalogue: Catalogue, node: Node | undefined) {
  const component = declaredFor(catalogue, node);
  return { component, inputs: component?.inputs ?? [], outputs: component?.outputs ?? [] };
}

/** The slots of a node's component and what they are bound to. */
export function statesOf(graph: GraphDocument, catalogue: Catalogue, node: Node | undefined): StateShown[] {
  const slots = (node && catalogue[node.component]?.states) || [];
  const bound = node?.states ?? {};
  const names = [...new Set([...slots.map((slot) => slot.slot), ...Object.keys(bound)])];
  return names.map((slot) => {
    const state = bound[slot] ?? "";
    const declared = graph.states?.[state];
    const kind = declared?.kind ?? slots.find((one) => one.slot === slot)?.kind ?? "";
    const optional = slots.find((one) => one.slot === slot)?.optional ?? false;
    return { slot, state, kind, scope: declared?.scope ?? "run", missing: state ? !declared : !optional };
  });
}

/** A block's colour: what it makes, or what it takes. */
export function blockColor(catalogue: Catalogue, node: Node | undefined): string {
  const { component, inputs, outputs } = declaredPorts(catalogue, node);
  const port = outputs[0] ?? inputs[0];
  return component && port ? color(port.type) : "var(--line-strong)";
}
