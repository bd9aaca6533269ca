// The documents that come with Walkgraph.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { GraphDocument } from "../../src/document/types";

const GRAPHS = join(import.meta.dirname, "../../../../graphs");

export const names = readdirSync(GRAPHS)
  .filter((file) => file.endsWith(".json"))
  .map((file) => file.slice(0, -".json".length));

export function graph(name: string): GraphDocument {
  return JSON.parse(readFileSync(join(GRAPHS, `${name}.json`), "utf8")) as GraphDocument;
}
