// The editor's own data in the document: positions, closed containers, reroutes, notes, frames.
import { ancestry, factsOf } from "../../routes";
import type { Entry } from "../../tree";
import type { Canvas, CanvasLayout, Frame, GraphDocument, ItemId, Layout, Note } from "../../types";
import { kept, withKey, withPart, withSection } from "./records";

const NOTHING: CanvasLayout = Object.freeze({});

/** The layout of a canvas; the same empty one where nothing is kept. */
export function canvasLayout(graph: GraphDocument, canvas: Canvas): CanvasLayout {
  const layout = graph.layout as Layout | undefined;
  return (canvas.kind === "components" ? layout?.components : layout?.walks?.[canvas.walk]) ?? NOTHING;
}

/** A changed layout of a canvas; what gets empty goes. */
export function changeLayout(
  graph: GraphDocument,
  canvas: Canvas,
  change: (layout: CanvasLayout) => CanvasLayout,
): GraphDocument {
  const before = canvasLayout(graph, canvas);
  const after = change(before);
  if (after === before) return graph;
  const layout = (graph.layout ?? {}) as Layout;
  const part = Object.keys(after).length ? after : undefined;
  if (canvas.kind === "components") return withSection(graph, "layout", withKey(layout, "components", part));
  const walks = withKey(layout.walks ?? {}, canvas.walk, part);
  return withSection(graph, "layout", withPart(layout, "walks", walks));
}

/** The Walk's canvas, however deep inside its containers. */
export function walkCanvas(walk: string): Canvas {
  return { kind: "walk", walk, inside: null };
}

/** Put things at places; the keys are those of `CanvasLayout.at`. Whole pixels. */
export function place(
  graph: GraphDocument,
  canvas: Canvas,
  places: Readonly<Record<string, readonly [number, number]>>,
): GraphDocument {
  return changeLayout(graph, canvas, (layout) => {
    const at = Object.entries(places).reduce((made, [key, [x, y]]) => {
      const old = made[key];
      const [left, top] = [Math.round(x), Math.round(y)];
      return old && old[0] === left && old[1] === top ? made : withKey(made, key, [left, top]);
    }, layout.at ?? {});
    return withPart(layout, "at", at);
  });
}

/** Forget places, so that the automatic layout finds new ones. */
export function unplace(graph: GraphDocument, canvas: Canvas, keys: readonly string[]): GraphDocument {
  return changeLayout(graph, canvas, (layout) =>
    layout.at
      ? withPart(
          layout,
          "at",
          keys.reduce((at, key) => withKey(at, key, undefined), layout.at),
        )
      : layout,
  );
}

export function setClosed(graph: GraphDocument, canvas: Canvas, id: ItemId, closed: boolean): GraphDocument {
  return changeLayout(graph, canvas, (layout) => {
    const before = layout.closed ?? [];
    if (before.includes(id) === closed) return layout;
    return withPart(layout, "closed", closed ? [...before, id] : before.filter((other) => other !== id));
  });
}

/** Makes the selection visible by opening the closed containers around it. An edge counts as both its ends. */
export function revealed(graph: GraphDocument, canvas: Canvas, selection: readonly string[]): GraphDocument {
  const walk = canvas.kind === "walk" ? graph.walks?.[canvas.walk] : undefined;
  if (!walk || !canvasLayout(graph, canvas).closed?.length) return graph;
  const { byId, routes } = factsOf(walk);
  const around = new Set(
    selection.flatMap((id) => {
      if (!id.startsWith("edge:")) return ancestors(byId.get(id));
      const route = routes[Number(id.slice("edge:".length))];
      const outer = new Set(ancestors(route?.source.entry));
      return ancestors(route?.target.entry).filter((one) => outer.has(one));
    }),
  );
  return [...around].reduce((made, id) => setClosed(made, canvas, id, false), graph);
}

function ancestors(entry: Entry | null | undefined): ItemId[] {
  return entry ? ancestry(entry).flatMap((one) => (one === entry ? [] : one.id)) : [];
}

/** The points that a wire (`from>to`) passes, in order; none: it goes straight. */
export function setReroutes(
  graph: GraphDocument,
  canvas: Canvas,
  key: string,
  points: readonly (readonly [number, number])[],
): GraphDocument {
  return changeLayout(graph, canvas, (layout) => {
    const rounded = points.map(([x, y]): [number, number] => [Math.round(x), Math.round(y)]);
    if (JSON.stringify(layout.reroutes?.[key] ?? []) === JSON.stringify(rounded)) return layout;
    return withPart(layout, "reroutes", withKey(layout.reroutes ?? {}, key, rounded.length ? rounded : undefined));
  });
}

/** Add a note, or replace the one with its id. */
export function putNote(graph: GraphDocument, canvas: Canvas, note: Note): GraphDocument {
  return changeLayout(graph, canvas, (layout) => withPart(layout, "notes", put(layout.notes ?? [], note)));
}

export function removeNote(graph: GraphDocument, canvas: Canvas, id: string): GraphDocument {
  return changeLayout(graph, canvas, (layout) => withPart(layout, "notes", without(layout.notes, id)));
}

/** Add a frame, or replace the one with its id. */
export function putFrame(graph: GraphDocument, canvas: Canvas, frame: Frame): GraphDocument {
  return changeLayout(graph, canvas, (layout) => withPart(layout, "frames", put(layout.frames ?? [], frame)));
}

export function removeFrame(graph: GraphDocument, canvas: Canvas, id: string): GraphDocument {
  return changeLayout(graph, canvas, (layout) => withPart(layout, "frames", without(layout.frames, id)));
}

/** An id that no note or frame of the canvas has. */
export function freshId(graph: GraphDocument, canvas: Canvas, kind: "note" | "frame"): string {
  const layout = canvasLayout(graph, canvas);
  const taken = new Set((kind === "note" ? layout.notes : layout.frames)?.map((each) => each.id));
  let number = 1;
  while (taken.has(`${kind}${number}`)) number += 1;
  return `${kind}${number}`;
}

/** Keys of a canvas under other names; one that becomes undefined is forgotten. */
export function rekeyed(layout: CanvasLayout, key: (old: string) => string | undefined): CanvasLayout {
  let made = layout;
  if (layout.at) made = withPart(made, "at", rekeyedRecord(layout.at, key));
  if (layout.muted) made = withPart(made, "muted", rekeyedRecord(layout.muted, key));
  if (layout.closed) {
    const closed = layout.closed.flatMap((id) => key(id) ?? []);
    const same = closed.length === layout.closed.length && closed.every((id, index) => id === layout.closed![index]);
    if (!same) made = withPart(made, "closed", closed);
  }
  return made;
}

function rekeyedRecord<T>(record: Record<string, T>, key: (old: string) => string | undefined): Record<string, T> {
  const entries = Object.entries(record);
  const made = entries.flatMap(([old, value]): [string, T][] => {
    const name = key(old);
    return name === undefined ? [] : [[name, value]];
  });
  const same = made.length === entries.length && made.every(([name], index) => name === entries[index]![0]);
  return same ? record : Object.fromEntries(made);
}

/** Wires under the references they have after a change. */
export function rewired(
  layout: CanvasLayout,
  change: (reference: string, side: "source" | "target") => string,
): CanvasLayout {
  if (!layout.reroutes) return layout;
  const made = Object.entries(layout.reroutes).map(([key, points]) => {
    const [from = "", to = ""] = key.split(">");
    return [`${change(from, "source")}>${change(to, "target")}`, points] as const;
  });
  const same = made.every(([key]) => key in layout.reroutes!);
  return same ? layout : { ...layout, reroutes: Object.fromEntries(made) };
}

function put<T extends { id: string }>(list: readonly T[], value: T): T[] {
  return list.some((each) => each.id === value.id)
    ? list.map((each) => (each.id === value.id ? value : each))
    : [...list, value];
}

function without<T extends { id: string }>(list: readonly T[] | undefined, id: string): T[] | undefined {
  return list && kept(list, (each) => each.id !== id);
}
