// The page's scratch deployment of an open graph: it serves what is drawn, and keeps what did not change loaded.
import { call } from "../api/client";
import type { DeploymentShown } from "../messages/answers";
import type { Editor } from "../store/editor";
import type { Documents } from "../store/types";

/** Seconds that the service waits for news of it before it answers all the same. */
const WAIT = 20;

/** How the names of scratch deployments begin. */
export const PREFIX = "scratch_";

const path = (id: string) => `/api/v1/scratch/${encodeURIComponent(id)}`;

/** Has it serve these documents; it is started where there is none. Resolves once it does. Raises ApiError where the
 *  graph can't be run: the one before it is served on. */
export async function serve(editor: Editor, { graph, placement }: Documents): Promise<DeploymentShown> {
  const before = editor.state.scratch;
  const id = before?.id ?? newName();
  // From now on its frames are heard.
  if (!before) editor.store.setState({ scratch: { id, graph } });
  let { value } = await call<DeploymentShown>(path(id), { method: "PUT", body: { graph, placement } });
  editor.store.setState({ scratch: { id, graph } });
  while (value.state === "starting") {
    const query = `?after=${value.revision}&wait=${WAIT}`;
    ({ value } = await call<DeploymentShown>(`/api/v1/deployments/${id}${query}`));
  }
  editor.store.setState({ deployments: { ...editor.state.deployments, [id]: value } });
  return value;
}

/** The page ends, or nobody wants it any more. */
export function leave(editor: Editor): void {
  const { scratch } = editor.state;
  if (!scratch) return;
  const { [scratch.id]: _gone, ...deployments } = editor.state.deployments;
  editor.store.setState({ scratch: null, deployments });
  // Where it isn't heard, the service ends it after a while.
  void call(path(scratch.id), { method: "DELETE", keepalive: true }).catch(() => undefined);
}

function newName(): string {
  return `${PREFIX}${crypto.randomUUID().slice(0, 8)}`;
}
