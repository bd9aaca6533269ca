// The palette's components, and the tasks that nodes can call, as the service declares them.
import { call } from "../api/client";
import type { Catalogue, Component } from "../messages/answers";
import { strings } from "../strings";

let loading: Promise<Catalogue> | null = null;

/**
 * Component name -> its declaration. Asked for anew for every graph that is opened, since the tasks that can be called
 * change with the graphs. Raises ApiError.
 */
export function loadCatalogue(): Promise<Catalogue> {
  loading ??= call<Component[]>("/api/v1/components?tasks=true")
    .then(({ value }) => byName(value))
    .finally(() => (loading = null));
  return loading;
}

/** Listed by their names; a component is found by its former names too, which are not listed. */
export function byName(components: readonly Component[]): Catalogue {
  const found = Object.fromEntries(components.map((component) => [component.name, component]));
  for (const component of components)
    for (const name of component.former ?? []) Object.defineProperty(found, name, { value: component });
  return found;
}

/** The family that it is of, or the graph of a task: `bagel.vae_decoder` -> `bagel`, `shapes/edit` -> `shapes`. */
export function familyOf(component: Component | string): string {
  const name = typeof component === "string" ? component : component.name;
  return name.split(/[./]/, 1)[0] ?? name;
}

/** The graph whose task a node calls: `shapes/edit` -> `shapes`; null for a component. */
export function calledGraph(component: string): string | null {
  return component.includes("/") ? familyOf(component) : null;
}

/** The address of the editor with a graph, from any page of the studio. */
export function editorOf(graph: string): string {
  return `editor?graph=${encodeURIComponent(graph)}`;
}

/** Its group in lists: its category if it has one, else its family. */
export function groupOf(component: Component): string {
  return component.category || familyOf(component);
}

/** Its name within its family, in words: `bagel.vae_decoder` -> `vae decoder`. */
export function title(component: Component | string): string {
  const name = typeof component === "string" ? component : component.name;
  return (name.split(/[./]/)[1] ?? name).replace(/_/g, " ");
}

const COSTS: Record<string, string> = {
  compute: strings.shell.computeBound,
  memory: strings.shell.memoryBound,
  launch: strings.shell.tinyOpLaunchBound,
};

/** The bound of its speed, in words. */
export function costText(cost: string): string {
  return COSTS[cost] ?? cost;
}

const STATE_KINDS: Record<string, string> = {
  paged_kv: strings.shell.kvCache,
  tensor: "tensor",
  rng: strings.shell.randomNumbers,
};

export function stateKindText(kind: string): string {
  return STATE_KINDS[kind] ?? kind;
}
