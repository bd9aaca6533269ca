// Requests of the Deploy view to the service.
import { ApiError, call } from "../api/client";
import type { DeploymentShown } from "../messages/answers";
import type { Editor } from "../store/editor";

/** Seconds that running requests get before they are ended. */
export const GRACE = 60;

export interface Refusal {
  message: string;
  /** Pointers start with `/graph` or `/placement`. */
  problems: readonly { code: string; pointer: string; message: string }[];
}

const path = (id: string) => `/api/v1/deployments/${encodeURIComponent(id)}`;

/** Deploys the open graph as a new deployment with the graph's name. */
export function deploy(editor: Editor): Promise<Refusal | null> {
  const { name } = editor.state;
  return asked(editor, () => call("/api/v1/deployments", { method: "POST", body: { ...wanted(editor), name } }));
}

/** The open graph takes over once it is ready. */
export function switchTo(editor: Editor, id: string): Promise<Refusal | null> {
  return asked(editor, () => call(path(id), { method: "PUT", body: wanted(editor) }));
}

export function restart(editor: Editor, id: string): Promise<Refusal | null> {
  return asked(editor, () => call(`${path(id)}/restart`, { method: "POST" }));
}

/** Stop a switch that is under way, or clear one that failed. */
export function giveUpNext(editor: Editor, id: string): Promise<Refusal | null> {
  return asked(editor, async () => {
    await call(`${path(id)}/next`, { method: "DELETE" });
    return call(path(id));
  });
}

/** Answers once it is gone. */
export function undeploy(editor: Editor, id: string, grace: number): Promise<Refusal | null> {
  return asked(editor, async () => {
    await call(`${path(id)}?grace=${grace}`, { method: "DELETE" });
    const { [id]: _gone, ...others } = editor.state.deployments;
    editor.store.setState({ deployments: others });
    return null;
  });
}

function wanted(editor: Editor) {
  const { graph, placement } = editor.state.documents;
  return { graph, placement };
}

async function asked(editor: Editor, ask: () => Promise<{ value: unknown } | null>): Promise<Refusal | null> {
  try {
    const shown = (await ask())?.value as DeploymentShown | undefined;
    if (shown) show(editor, shown);
    return null;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { message: error.message, problems: error.problems };
  }
}

/** Unless a frame has told something newer meanwhile. */
function show(editor: Editor, shown: DeploymentShown): void {
  const { deployments } = editor.state;
  const known = deployments[shown.id];
  if (known && known.created_at === shown.created_at && known.revision > shown.revision) return;
  editor.store.setState({ deployments: { ...deployments, [shown.id]: shown } });
}
