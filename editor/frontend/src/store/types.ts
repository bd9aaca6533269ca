// The editor's state: one per open graph, outside React, so that it outlives the component's mounts.
import type { Catalogue, DeploymentShown, PlanShown, Problem } from "../messages/answers";
import type { Sources } from "../document/json";
import type { Canvas, GraphDocument } from "../document/types";
import type { PlacementDocument } from "../document/placement/schema.generated";

/** The documents that are edited, saved and undone together. Immutable: an edit makes new objects. */
export interface Documents {
  graph: GraphDocument;
  /** null: everything on one rank, chosen by the service. */
  placement: PlacementDocument | null;
  /** How the graph's numbers were written where it was read (`4.0`); none: as JavaScript writes them. */
  sources?: Sources;
}

export type Change = (documents: Documents) => Documents;

/** One undoable step; `before` is what undo brings back. */
export interface Step {
  label: string;
  before: Documents;
  view: View;
}

export type { Canvas };

export type Tab = "graph" | "tasks" | "placement" | "deploy" | "play" | "trace";

export interface View {
  tab: Tab;
  canvas: Canvas;
  /**
   * Ids of what is selected on the canvas: `node:NAME` on the components canvas; an item id, `@in`, `@out` or
   * `@stream.NAME` on a Walk's; `edge:INDEX` (of the Walk's edges), `stream:NAME`, `note:ID`, `frame:ID`.
   */
  selection: readonly string[];
  /** On the components canvas: the Walk whose way is lit, the rest dimmed. */
  lit: string | null;
  /** The property that colours the nodes. */
  lens: "kind" | "rank";
  /** The blueprint whose inside is shown in place of the graph. */
  opened?: string | null;
}

/** How the draft in the service stands to what is open here. */
export type Saving =
  | { state: "saved"; at: number | null }
  | { state: "unsaved" }
  | { state: "saving" }
  | { state: "offline"; message: string }
  | { state: "conflict"; theirs: Documents; etags: Etags }
  | { state: "readonly"; reason: string };

export interface Etags {
  graph: string | null;
  placement: string | null;
}

export interface Checked {
  problems: readonly Problem[];
  /** The graph that they are of; while it isn't the open one, a check is under way. */
  of: GraphDocument | null;
}

export interface Planned {
  plan: PlanShown | null;
  of: Documents | null;
  /** GPUs to plan for instead of those found, `3x141GB`; empty: those found. */
  hardware: string;
  problem: string | null;
  /** True once the placement was opened: from then on its problems are listed. */
  placing: boolean;
}

export interface Toast {
  id: number;
  kind: "info" | "error";
  message: string;
}

export interface EditorState {
  /** The stored documents' names. */
  name: string;
  placementName: string;
  documents: Documents;
  past: readonly Step[];
  future: readonly Step[];
  view: View;
  saving: Saving;
  etags: Etags;
  catalogue: Catalogue;
  checked: Checked;
  planned: Planned;
  /** All that the service has, but for other pages' scratch deployments; newest state, by id. */
  deployments: Readonly<Record<string, DeploymentShown>>;
  /** The graph document that the deployment of this graph was made from; null: not deployed. */
  deployed: GraphDocument | null;
  /** The page's scratch deployment, and the graph that it serves; null: nothing was run yet. */
  scratch: { id: string; graph: GraphDocument } | null;
  toasts: readonly Toast[];
}
