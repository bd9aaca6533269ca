// The plan follows graph, placement and hardware while somebody looks at it, or at loops.
import { ApiError, call } from "../api/client";
import type { DeploymentShown, PlanShown } from "../messages/answers";
import { onlyMoved } from "./checking";
import type { Editor } from "../store/editor";
import type { EditorState } from "../store/types";

const WAIT_MS = 300;
const RETRY_MS = 3000;

export class Planning {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running: AbortController | null = null;
  /** The last request. */
  private asked: EditorState | null = null;
  private readonly unsubscribe: () => void;

  constructor(private readonly editor: Editor) {
    this.unsubscribe = editor.store.subscribe(() => this.consider());
    this.consider();
  }

  dispose(): void {
    this.unsubscribe();
    this.running?.abort();
    clearTimeout(this.timer);
  }

  private consider(): void {
    const state = this.editor.state;
    const places = placing(state);
    if (places && !state.planned.placing) {
      this.editor.store.setState({ planned: { ...state.planned, placing: true } });
      return; // the store tells of that too
    }
    if (!(places || looping(state)) || (this.asked && sameQuestion(this.asked, state))) return;
    const first = this.asked === null;
    this.asked = state;
    this.running?.abort();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.plan(), first ? 0 : WAIT_MS);
  }

  private async plan(): Promise<void> {
    const { documents, planned } = this.editor.state;
    const running = new AbortController();
    this.running = running;
    const { hardware } = planned;
    const body = { graph: documents.graph, placement: documents.placement, ...(hardware ? { hardware } : {}) };
    try {
      const request = { method: "POST" as const, body, signal: running.signal };
      const { value } = await call<PlanShown>("/api/v1/plans", request);
      if (this.running === running) this.tell({ plan: value, of: documents, problem: null });
    } catch (error) {
      if (running.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      this.tell({ plan: null, of: documents, problem: error.message });
      const passing = error.status === 0 || error.status >= 500;
      if (passing) this.timer = setTimeout(() => void this.plan(), RETRY_MS);
    }
  }

  private tell(told: Omit<EditorState["planned"], "hardware" | "placing">): void {
    this.editor.store.setState({ planned: { ...this.editor.state.planned, ...told } });
  }
}

function placing({ view }: EditorState): boolean {
  return view.tab === "placement" || view.tab === "deploy" || view.lens === "rank";
}

/** Loops are in sight, which say where they are iterated. */
function looping({ view: { tab, canvas }, documents }: EditorState): boolean {
  return tab === "graph" && canvas.kind === "walk" && hasLoop(documents.graph.walks?.[canvas.walk]?.body);
}

function hasLoop(part: unknown): boolean {
  if (typeof part !== "object" || part === null) return false;
  return "loop" in part || Object.values(part).some(hasLoop);
}

function sameQuestion(before: EditorState, after: EditorState): boolean {
  return (
    onlyMoved(before.documents.graph, after.documents.graph) &&
    before.documents.placement === after.documents.placement &&
    before.planned.hardware === after.planned.hardware &&
    memory(before.deployments) === memory(after.deployments)
  );
}

/** Deployments that come, go or load change what memory is free. */
function memory(deployments: Readonly<Record<string, DeploymentShown>>): string {
  return Object.values(deployments)
    .map((found) => `${found.id} ${found.state} ${found.digest}`)
    .join();
}
