// The playground as a page of its own: no graph is open, deployments alone are followed.
import { useEffect, useMemo } from "react";
import { DebugDock } from "../../debug/Dock";
import { PlayView } from "../../play/PlayView";
import { Deployments } from "../../store/deployments";
import { emptyGraph } from "../../store/documents";
import { Editor } from "../../store/editor";
import { EditorContext } from "../../store/react";
import { Following } from "../../session/following";
import { Toasts } from "../frame/Toasts";

export function PlayPage({ deployment }: { deployment: string | undefined }) {
  const editor = useMemo(
    () => new Editor(deployment ?? "", { graph: emptyGraph("none"), placement: null }),
    [deployment],
  );
  useEffect(() => {
    const attached = [new Deployments(editor), new Following(editor)];
    return () => attached.forEach((one) => one.dispose());
  }, [editor]);
  return (
    <EditorContext value={editor}>
      <div className="wg-app">
        <main className="wg-main" aria-label="The playground">
          <PlayView alone />
        </main>
        <DebugDock alone />
      </div>
      <Toasts />
    </EditorContext>
  );
}
