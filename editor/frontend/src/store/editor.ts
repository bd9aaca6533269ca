// One open graph: its documents, their history, the view. Persistence, checking and planning are attached in
// `session/session.ts`; nothing here knows a server.
import { createStore, type StoreApi } from "zustand/vanilla";
import type { Catalogue } from "../messages/answers";
import { withBlueprints } from "../document/blueprints/inside";
import type { Sources } from "../document/json";
import type { GraphDocument } from "../document/types";
import { revealed } from "../document/edits/parts/layout";
import { followGraph } from "../document/placement/follow";
import type { PlacementDocument } from "../document/placement/schema.generated";
import type { Canvas, Change, Documents, EditorState, Step, View } from "./types";
import { around } from "./undo";
import { strings } from "../strings";

const HISTORY = 200;
/** Edits with one merge key closer than this are one step, in ms. */
const MERGE_MS = 1000;

export class Editor {
  readonly store: StoreApi<EditorState>;
  private merging: { key: string; until: number } | null = null;
  private toasts = 0;

  /** `base`: the service's components, without the graph's own blueprints. */
  constructor(
    name: string,
    documents: Documents,
    readonly base: Catalogue = {},
  ) {
    const catalogue = base;
    const state: EditorState = {
      name,
      placementName: documents.placement?.name ?? name,
      documents,
      past: [],
      future: [],
      view: { tab: "graph", canvas: firstCanvas(documents.graph), selection: [], lit: null, lens: "kind" },
      saving: { state: "saved", at: null },
      etags: { graph: null, placement: null },
      catalogue,
      checked: { problems: [], of: null },
      planned: { plan: null, of: null, hardware: "", problem: null, placing: false },
      deployments: {},
      deployed: null,
      scratch: null,
      toasts: [],
    };
    this.store = createStore<EditorState>(() => ({
      ...state,
      catalogue: withBlueprints(catalogue, documents.graph),
    }));
    // What nodes of blueprints look like follows from the document.
    this.store.subscribe(({ documents: { graph } }, before) => {
      if (graph.blueprints === before.documents.graph.blueprints) return;
      this.store.setState({ catalogue: withBlueprints(catalogue, graph) });
    });
  }

  /** The blueprint whose inside is the graph; null: it is a graph. */
  get inside(): string | null {
    return null;
  }

  get state(): EditorState {
    return this.store.getState();
  }

  get graph(): GraphDocument {
    return this.state.documents.graph;
  }

  /** One undoable step. Edits with the same `merge` key in quick succession (typing, dragging) are one. */
  edit(label: string, change: Change, merge?: string): void {
    const { documents, past, view } = this.state;
    const changed = change(documents);
    if (changed === documents) return;
    const now = Date.now();
    const merged = merge !== undefined && this.merging?.key === merge && now < this.merging.until && past.length > 0;
    this.merging = merge === undefined ? null : { key: merge, until: now + MERGE_MS };
    const step: Step = { label, before: documents, view };
    this.store.setState({
      documents: changed,
      past: merged ? past : [...past, step].slice(-HISTORY),
      future: [],
      view: surviving(view, changed.graph),
    });
  }

  /** An edit of the graph alone. */
  editGraph(label: string, change: (graph: GraphDocument) => GraphDocument, merge?: string): void {
    this.edit(label, (documents) => withGraph(documents, change(documents.graph)), merge);
  }

  editPlacement(
    label: string,
    change: (placement: PlacementDocument | null) => PlacementDocument | null,
    merge?: string,
  ): void {
    const apply = (documents: Documents): Documents => {
      const placement = change(documents.placement);
      return placement === documents.placement ? documents : { ...documents, placement };
    };
    this.edit(label, apply, merge);
  }

  undo(): void {
    this.travel("past", "future");
  }

  redo(): void {
    this.travel("future", "past");
  }

  /** Replace everything, as one step that can be undone. */
  replace(label: string, documents: Documents): void {
    this.edit(label, () => documents);
  }

  /** Go to a state of this history, over any number of its steps; what is none of it becomes one step. */
  restore(label: string, documents: Documents): void {
    const steps = around(this.state, documents);
    if (!steps) return this.replace(label, documents);
    this.merging = null;
    this.store.setState({ documents, ...steps, view: surviving(this.state.view, documents.graph) });
  }

  see(view: Partial<View>): void {
    this.store.setState({ view: { ...this.state.view, ...view } });
  }

  select(...selection: string[]): void {
    this.see({ selection });
  }

  /** Show a canvas with these selected, out of the containers that were closed around them. */
  open(canvas: Canvas, selection: readonly string[] = []): void {
    this.see({ tab: "graph", canvas, selection });
    this.editGraph(strings.shell.openAContainer, (graph) => revealed(graph, canvas, selection));
  }

  say(message: string, kind: "info" | "error" = "info"): void {
    this.toasts += 1;
    this.store.setState({ toasts: [...this.state.toasts.slice(-3), { id: this.toasts, kind, message }] });
  }

  hush(id: number): void {
    this.store.setState({ toasts: this.state.toasts.filter((toast) => toast.id !== id) });
  }

  private travel(from: "past" | "future", to: "past" | "future"): void {
    const state = this.state;
    const step = state[from].at(-1);
    if (!step) return;
    this.merging = null;
    const back: Step = { label: step.label, before: state.documents, view: state.view };
    const view = { ...step.view, tab: state.view.tab, lens: state.view.lens };
    this.store.setState({
      documents: step.before,
      [from]: state[from].slice(0, -1),
      [to]: [...state[to], back],
      view: surviving(view, step.before.graph),
    });
  }
}

/** The placement follows what is renamed and removed. `sources`: of a graph that was read from text. */
export function withGraph(
  documents: Documents,
  graph: GraphDocument,
  sources: Sources | undefined = documents.sources,
): Documents {
  if (graph === documents.graph) return documents;
  return { graph, placement: followGraph(documents.placement, documents.graph, graph), sources };
}

function firstCanvas(graph: GraphDocument): Canvas {
  const walk = Object.keys(graph.walks ?? {})[0];
  return walk === undefined ? { kind: "components" } : { kind: "walk", walk, inside: null };
}

/** A view never shows a Walk that is gone. */
function surviving(view: View, graph: GraphDocument): View {
  const gone = view.canvas.kind === "walk" && !(view.canvas.walk in (graph.walks ?? {}));
  if (view.opened != null && !(view.opened in (graph.blueprints ?? {}))) view = { ...view, opened: null };
  const lit = view.lit !== null && view.lit in (graph.walks ?? {}) ? view.lit : null;
  return gone || lit !== view.lit
    ? { ...view, lit, ...(gone ? { canvas: firstCanvas(graph), selection: [] } : {}) }
    : view;
}
