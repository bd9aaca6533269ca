// How well components suit a graph: what it uses comes before what it could use, and that before parts of models that
// it has nothing of. Pure.
import type { Catalogue, Component } from "../messages/answers";
import type { GraphDocument } from "../document/types";
import { familyOf } from "./catalogue";

/** As a component's weights: those of any family. */
const ANY = "any";

/** The families of components that are parts of models. */
export function modelFamilies(components: readonly Component[]): ReadonlySet<string> {
  return new Set(components.filter(({ weights }) => weights && weights !== ANY).map(familyOf));
}

const FREE = 0.97;
const FOREIGN = 0.85;

/** From 1, for what the graph uses, downwards. */
export function suiting(graph: GraphDocument, catalogue: Catalogue): (component: Component) => number {
  const used = new Set(Object.values(graph.nodes ?? {}).map((node) => catalogue[node.component]?.name));
  const own = new Set([
    ...Object.values(graph.weights ?? {}).map((weights) => weights.family),
    ...[...used].flatMap((name) => (name === undefined ? [] : familyOf(name))),
  ]);
  const models = modelFamilies(Object.values(catalogue));
  return (component) => {
    if (used.has(component.name)) return 1;
    const family = familyOf(component);
    return models.has(family) && !own.has(family) ? FOREIGN : FREE;
  };
}
