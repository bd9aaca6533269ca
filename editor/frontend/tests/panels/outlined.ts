// A Walk's rows of the outline as lines: kind, label and detail, indented as they are shown.
import type { GraphDocument } from "../../src/document/types";
import { rowsOf } from "../../src/panels/outline/outline";

export function outlined(graph: GraphDocument, walk: string): string[] {
  return rowsOf(graph)
    .filter((row) => row.walk === walk && row.kind !== "walk")
    .map(({ kind, label, detail, level }) => {
      const words = [kind, kind === "in" || kind === "out" ? "" : label, detail].filter(Boolean).join(" ");
      return "  ".repeat(level - 3) + words;
    });
}
