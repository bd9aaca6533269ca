// Deployments of the service, from its frames, and the graph that this graph's deployment was made from.
import { ApiError, call } from "../api/client";
import type { DeploymentShown } from "../messages/answers";
import type { GraphDocument } from "../document/types";
import { subscribe, type Frame } from "../api/socket";
import type { Editor } from "./editor";
import type { EditorState } from "./types";

export class Deployments {
  private readonly unsubscribe: () => void;
  private disposed = false;
  /** Which version of which deployment `deployed` is of. */
  private shown: string | null = null;

  constructor(private readonly editor: Editor) {
    this.unsubscribe = subscribe((frame) => this.hear(frame));
    void this.refresh();
  }

  dispose(): void {
    this.disposed = true;
    this.unsubscribe();
  }

  /** Ask the service for all of them. Where it does not answer, the next frame brings them. */
  async refresh(): Promise<void> {
    try {
      const { value } = await call<DeploymentShown[]>("/api/v1/deployments");
      this.set(Object.fromEntries(value.map((deployment) => [deployment.id, deployment])));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
  }

  private hear(frame: Frame): void {
    if (frame.type === "welcome" || frame.type === "gap") void this.refresh();
    if (frame.type !== "deployment") return;
    const { type: _type, deployment: id, seq: _seq, ...shown } = frame;
    const { [id]: before, ...others } = this.editor.state.deployments;
    if (before && before.created_at === shown.created_at && before.revision > shown.revision) return;
    const stopped = shown.state === "stopped";
    if (stopped && id === this.editor.state.scratch?.id) this.editor.store.setState({ scratch: null });
    this.set(stopped ? others : { ...others, [id]: shown });
  }

  private set(deployments: Record<string, DeploymentShown>): void {
    if (this.disposed) return;
    const own = this.editor.state.scratch?.id;
    const known = Object.entries(deployments).filter(([id, { scratch }]) => !scratch || id === own);
    this.editor.store.setState({ deployments: Object.fromEntries(known) });
    void this.follow();
  }

  private async follow(): Promise<void> {
    const found = deploymentOf(this.editor.state.deployments, this.editor.state.name);
    const version = found && `${found.id} ${found.created_at} ${found.digest} ${found.next === null}`;
    if (version === this.shown) return;
    this.shown = version;
    if (!found) {
      this.editor.store.setState({ deployed: null });
      return;
    }
    try {
      const { value } = await call<GraphDocument>(`/api/v1/deployments/${encodeURIComponent(found.id)}/graph`);
      if (this.shown === version && !this.disposed) this.editor.store.setState({ deployed: value });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (this.shown === version) this.shown = null;
    }
  }
}

/** The deployment of a graph for its clients: the one named like it, else the first made from it. */
export function deploymentOf(
  deployments: Readonly<Record<string, DeploymentShown>>,
  graph: string,
): DeploymentShown | null {
  const made = Object.values(deployments).filter((deployment) => deployment.graph === graph && !deployment.scratch);
  return made.find((deployment) => deployment.id === graph) ?? made[0] ?? null;
}

/** The deployment whose runs the canvas shows: the page's scratch deployment, once it runs what is drawn, else the
 *  graph's. */
export function shownOn({ deployments, scratch, name }: EditorState): DeploymentShown | null {
  return (scratch && deployments[scratch.id]) ?? deploymentOf(deployments, name);
}
