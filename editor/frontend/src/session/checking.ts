// Problems follow the graph: each edit starts a check at once and ends the one before it.
import { ApiError, call } from "../api/client";
import type { Problem } from "../messages/answers";
import type { GraphDocument } from "../document/types";
import type { Editor } from "../store/editor";
import { followed } from "./followed";

const RETRY_MS = 3000;

export class Checking {
  private running: AbortController | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private readonly unsubscribe: () => void;

  constructor(private readonly editor: Editor) {
    this.unsubscribe = editor.store.subscribe((state, before) => {
      if (state.documents.graph !== before.documents.graph)
        this.changed(state.documents.graph, before.documents.graph);
    });
    void this.check(editor.graph);
  }

  dispose(): void {
    this.unsubscribe();
    this.running?.abort();
    clearTimeout(this.retry);
  }

  private changed(graph: GraphDocument, before: GraphDocument): void {
    const { checked } = this.editor.state;
    if (checked.of && onlyMoved(checked.of, graph)) {
      this.running?.abort();
      this.editor.store.setState({ checked: { problems: checked.problems, of: graph } });
      return;
    }
    const problems = followed(checked.problems, before, graph);
    // They are of no graph now: an edit back to the one before has all of its problems again.
    if (problems !== checked.problems) this.editor.store.setState({ checked: { problems, of: null } });
    void this.check(graph);
  }

  private async check(graph: GraphDocument): Promise<void> {
    this.running?.abort();
    clearTimeout(this.retry);
    const running = new AbortController();
    this.running = running;
    try {
      const request = { method: "POST" as const, body: graph, signal: running.signal };
      const { value } = await call<{ problems: Problem[] }>("/api/v1/graphs/check", request);
      if (this.running === running) this.editor.store.setState({ checked: { problems: value.problems, of: graph } });
    } catch (error) {
      if (running.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      this.retry = setTimeout(() => void this.check(this.editor.graph), RETRY_MS);
    }
  }
}

/** True if two graphs differ only in the editor's layout. Edits keep the objects that they don't change. */
export function onlyMoved(before: GraphDocument, after: GraphDocument): boolean {
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  keys.delete("layout");
  return [...keys].every((key) => before[key as keyof GraphDocument] === after[key as keyof GraphDocument]);
}
