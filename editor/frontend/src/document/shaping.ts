// Ports that follow from a node's parameters, derived like `walkgraph.graph.language.shaping`.
import type { Component, ParamDeclaration, Port } from "../messages/answers";
import { parseType } from "./typing";

export const MOST_PORTS = 64;

interface Listed {
  name: string;
  type: string | null;
  optional: boolean;
}

/** A type, ports, or null where a type can't be read. */
type Given = string | readonly Listed[] | null;

const NAME = /^\s*([A-Za-z][A-Za-z0-9_]{0,63})\s*(\?)?\s*(?::([^]*))?$/;
const HOLE = /\{\{|\}\}|\{([^{}]*)\}|[{}]/g;
const COMMA = /,(?![^[]*\])/;

const known = new WeakMap<Component, Map<string, Component>>();

/** The component with the ports that a node's parameters give it. */
export function shaped(component: Component, params: Readonly<Record<string, unknown>>): Component {
  const giving = Object.entries(component.params).filter(([, param]) => param.gives);
  if (!giving.length) return component;
  const values = giving.map(([key, param]) => params[key] ?? param.default);
  const made = known.get(component) ?? new Map<string, Component>();
  known.set(component, made);
  const key = JSON.stringify(values);
  let found = made.get(key);
  if (!found) {
    const given = new Map(giving.map(([name, param], i) => [name, givenBy(param, values[i])]));
    const ports = (side: readonly Port[]) =>
      side.flatMap((port) => portsFor(port, given.get(port.of ?? ""), given.get(port.like ?? "")));
    found = { ...component, inputs: ports(component.inputs), outputs: ports(component.outputs) };
    made.set(key, found);
  }
  return found;
}

function portsFor(port: Port, given: Given | undefined, like: Given | undefined): Port[] {
  if (given == null) return [port];
  if (typeof given === "string") return [{ ...port, type: manyOf(given, port.type) }];
  const kind = typeof like === "string" ? likeOf(like, port.type) : port.type;
  return given.map(({ name, type, optional }) => ({
    ...port,
    name,
    type: type ?? kind,
    optional: optional || port.optional,
  }));
}

/** The given type; a list of it where a list is declared. */
function manyOf(given: string, declared: string): string {
  const many = parseType(declared)?.many && !parseType(given)?.many;
  return many ? `list of ${given}` : given;
}

/** The given type, as a list or not as it is declared. */
function likeOf(given: string, declared: string): string {
  const single = parseType(given)?.many ? given.replace(/^\s*list\s+of\s+/, "") : given;
  return manyOf(single, declared);
}

function givenBy(param: ParamDeclaration, value: unknown): Given {
  const text = typeof value === "string" ? value : "";
  if (param.gives === "type") return parseType(text) ? text.trim() : null;
  const listed = param.gives === "holes" ? holes(text) : listedPorts(text);
  return (listed && settled(listed, param.gives === "ports")) ?? [];
}

function settled(listed: readonly Listed[], once: boolean): readonly Listed[] | null {
  const found = new Map<string, Listed>();
  for (const one of listed) {
    const first = found.get(one.name) ?? one;
    if (first !== one && once) return null;
    if (one.type !== null && one.type !== first.type) return null;
    found.set(one.name, first);
  }
  return found.size > MOST_PORTS ? null : [...found.values()];
}

function holes(text: string): Listed[] | null {
  const found: Listed[] = [];
  for (const [whole, inside] of text.matchAll(HOLE)) {
    if (inside === undefined) {
      if (whole.length === 1) return null;
      continue;
    }
    const one = listed(inside);
    if (!one) return null;
    found.push(one);
  }
  return found;
}

function listedPorts(text: string): Listed[] | null {
  if (!text.trim()) return [];
  const found = text.split(COMMA).map(listed);
  return found.every((one) => one !== null) ? found : null;
}

function listed(text: string): Listed | null {
  const [, name, mark, type] = NAME.exec(text) ?? [];
  if (name === undefined || (type !== undefined && !parseType(type))) return null;
  return { name, type: type?.trim() ?? null, optional: mark !== undefined };
}
