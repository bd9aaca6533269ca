// Changes of one part of the document, shared by all edits.
import { isName } from "../../names";
import type { Facts } from "../../routes";
import type { Entry } from "../../tree";
import type { GraphDocument, ItemId, Link, Node, Stream, Task, Walk } from "../../types";
import { EditRefused, mapped, withKey, withSection, withWalkPart } from "./records";
import { strings } from "../../../strings";

export function walkOf(graph: GraphDocument, name: string): Walk {
  const walk = own(graph.walks, name);
  if (!walk) throw new EditRefused(strings.document.thereIsNoWalk(name));
  return walk;
}

export function nodeOf(graph: GraphDocument, name: string): Node {
  const node = own(graph.nodes, name);
  if (!node) throw new EditRefused(strings.document.thereIsNoNode(name));
  return node;
}

export function taskOf(graph: GraphDocument, name: string): Task {
  const task = own(graph.tasks, name);
  if (!task) throw new EditRefused(strings.document.thereIsNoTask(name));
  return task;
}

export function entryOf(facts: Facts, id: ItemId): Entry {
  const entry = facts.byId.get(id);
  if (!entry) throw new EditRefused(strings.document.theWalkNoLongerHasWithId(id));
  return entry;
}

export function linksOf(walk: Walk): readonly Link[] {
  return Array.isArray(walk.edges) ? walk.edges : [];
}

export function streamsOf(graph: GraphDocument): readonly Stream[] {
  return Array.isArray(graph.streams) ? graph.streams : [];
}

export function changeWalk(graph: GraphDocument, name: string, change: (walk: Walk) => Walk): GraphDocument {
  const walk = walkOf(graph, name);
  return withSection(graph, "walks", withKey(graph.walks!, name, change(walk)));
}

export function changeWalks(graph: GraphDocument, change: (walk: Walk, name: string) => Walk): GraphDocument {
  return graph.walks ? withSection(graph, "walks", mapped(graph.walks, change)) : graph;
}

export function changeNode(graph: GraphDocument, name: string, change: (node: Node) => Node): GraphDocument {
  const node = nodeOf(graph, name);
  return withSection(graph, "nodes", withKey(graph.nodes!, name, change(node)));
}

export function changeTask(graph: GraphDocument, name: string, change: (task: Task) => Task): GraphDocument {
  const task = taskOf(graph, name);
  return withSection(graph, "tasks", withKey(graph.tasks!, name, change(task)));
}

export function changeTasks(graph: GraphDocument, change: (task: Task, name: string) => Task): GraphDocument {
  return graph.tasks ? withSection(graph, "tasks", mapped(graph.tasks, change)) : graph;
}

export function withEdges(walk: Walk, edges: readonly Link[]): Walk {
  return withWalkPart(walk, "edges", edges === linksOf(walk) ? walk.edges : edges);
}

/** Refuses what is no name, and what is taken; `what` is a word for the message. */
export function freeName(what: string, name: string, taken: Iterable<string>): void {
  if (!isName(name)) throw new EditRefused(strings.document.cantBeANameStart(name));
  for (const other of taken)
    if (other === name) throw new EditRefused(strings.document.thereIsAlreadyChooseAnother(what, name));
}

/** Looks at a record's own keys only, so that a name like `toString` is nothing special. */
export function own<T>(record: Record<string, T> | undefined, name: string): T | undefined {
  return record && Object.hasOwn(record, name) ? record[name] : undefined;
}
