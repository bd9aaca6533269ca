// A view as a page of its own: no graph is open, deployments alone are followed.
import { useEffect, useMemo, type ReactNode } from "react";
import { DebugDock } from "../../debug/Dock";
import { emptyGraph } from "../../store/documents";
import { Editor } from "../../store/editor";
import { EditorContext } from "../../store/react";
import { Toasts } from "../frame/Toasts";

interface AlonePageProps {
  deployment: string | undefined;
  label: string;
  /** Subscriptions to the service while the page is shown; the same list at every call. */
  attached: readonly (new (editor: Editor) => { dispose: () => void })[];
  children: ReactNode;
}

export function AlonePage({ deployment, label, attached, children }: AlonePageProps) {
  const editor = useMemo(
    () => new Editor(deployment ?? "", { graph: emptyGraph("none"), placement: null }),
    [deployment],
  );
  useEffect(() => {
    const following = attached.map((Follower) => new Follower(editor));
    return () => following.forEach((one) => one.dispose());
  }, [attached, editor]);
  return (
    <EditorContext value={editor}>
      <div className="wg-app">
        <main className="wg-main" aria-label={label}>
          {children}
        </main>
        <DebugDock alone />
      </div>
      <Toasts />
    </EditorContext>
  );
}
