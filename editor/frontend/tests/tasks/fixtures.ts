import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "../../src/document/json";
import type { GraphDocument, Task } from "../../src/document/types";
import { walkRows, type WalkRow } from "../../src/tasks/model/rows";

export function bundled(name: string): GraphDocument {
  const file = join(__dirname, `../../../../graphs/${name}.json`);
  return parse(readFileSync(file, "utf8")).value as GraphDocument;
}

export function taskOf(graph: GraphDocument, name: string): Task {
  const task = graph.tasks?.[name];
  if (!task) throw new Error(`no task ${name}`);
  return task;
}

export function rowAt(task: Task, pointer: string): WalkRow {
  const row = walkRows(task).find((each) => each.pointer === pointer);
  if (!row) throw new Error(`no step at ${pointer}`);
  return row;
}
