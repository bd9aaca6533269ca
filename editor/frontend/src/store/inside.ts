// The inside of a blueprint as an open graph: its edits are edits of the graph around it, and so is undo.
import { insideOf } from "../document/blueprints/inside";
import { renameBlueprint, withInside } from "../document/edits/blueprints";
import { EditRefused } from "../document/edits/parts/records";
import { join, split } from "../document/pointer";
import type { Problem } from "../messages/answers";
import { strings } from "../strings";
import { Editor, withGraph } from "./editor";
import type { Change, Documents, EditorState } from "./types";

export class InsideEditor extends Editor {
  constructor(
    private readonly outer: Editor,
    readonly blueprint: string,
  ) {
    super(outer.state.name, inner(outer, blueprint), outer.base);
    this.store.setState({ checked: told(outer.state, this.graph, blueprint), deployments: outer.state.deployments });
  }

  override get inside(): string {
    return this.blueprint;
  }

  /** Another name for the blueprint, which stays open; the reason where it is refused. */
  rename(to: string): string | null {
    if (to === this.blueprint) return null;
    try {
      const label = strings.shell.renameABlueprint;
      this.outer.editGraph(label, (graph) => renameBlueprint(graph, this.blueprint, to));
    } catch (error) {
      if (error instanceof EditRefused) return error.message;
      throw error;
    }
    this.outer.see({ opened: to });
    return null;
  }

  /** Follow the graph around it; returns the end of that. */
  follow(): () => void {
    this.take();
    return this.outer.store.subscribe((state, before) => {
      if (state.documents === before.documents && state.checked === before.checked) return;
      this.take();
    });
  }

  override edit(label: string, change: Change, merge?: string): void {
    // Renamed or removed, while something still meant to change it.
    if (!this.outer.graph.blueprints?.[this.blueprint]) return;
    this.take();
    const before = this.state.documents;
    const changed = change(before);
    if (changed.graph === before.graph) return;
    const back = (documents: Documents): Documents =>
      withGraph(documents, withInside(documents.graph, this.blueprint, changed.graph));
    this.outer.edit(label, back, merge === undefined ? undefined : `${this.blueprint}/${merge}`);
    this.take();
  }

  override undo(): void {
    this.outer.undo();
  }

  override redo(): void {
    this.outer.redo();
  }

  override restore(label: string, documents: Documents): void {
    this.outer.restore(label, documents);
  }

  override say(message: string, kind: "info" | "error" = "info"): void {
    this.outer.say(message, kind);
  }

  private taken: unknown = null;

  private take(): void {
    const { documents, checked } = this.outer.state;
    const blueprint = documents.graph.blueprints?.[this.blueprint];
    if (!blueprint) return;
    const same = this.taken === documents.graph.blueprints;
    this.taken = documents.graph.blueprints;
    if (!same) this.store.setState({ documents: inner(this.outer, this.blueprint) });
    if (!same || checked !== this.told) {
      this.told = checked;
      this.store.setState({ checked: told(this.outer.state, this.graph, this.blueprint) });
    }
  }

  private told: unknown = null;
}

function inner(outer: Editor, blueprint: string): Documents {
  return { graph: insideOf(outer.graph, blueprint), placement: null, sources: outer.state.documents.sources };
}

const WALK = new Set(["inputs", "body", "edges", "merges"]);

/** The problems inside, at their places in the graph that is shown. */
function told({ checked, documents }: EditorState, graph: EditorState["documents"]["graph"], blueprint: string) {
  const problems = checked.problems.flatMap((problem): Problem[] => {
    const [section, name, part = "", ...rest] = split(problem.pointer);
    if (section !== "blueprints" || name !== blueprint) return [];
    return [{ ...problem, pointer: placed(blueprint, part, rest) }];
  });
  return { problems, of: checked.of === documents.graph ? graph : null };
}

function placed(blueprint: string, part: string, rest: string[]): string {
  if (part === "") return join("walks", blueprint);
  if (part === "outputs") return join("walks", blueprint, "results", ...rest);
  if (part === "params") return join("tasks", blueprint, "params", ...rest);
  return WALK.has(part) ? join("walks", blueprint, part, ...rest) : join(part, ...rest);
}
