// The editor inside React.
import { createContext, useContext } from "react";
import { useStore } from "zustand";
import type { DeploymentShown } from "../messages/answers";
import { deploymentOf } from "./deployments";
import type { Editor } from "./editor";
import type { EditorState } from "./types";

export const EditorContext = createContext<Editor | null>(null);

export function useEditor(): Editor {
  const editor = useContext(EditorContext);
  if (!editor) throw new Error("no editor is open");
  return editor;
}

/** `select` must return the same object for the same state: pick fields, make nothing. */
export function useEditorState<T>(select: (state: EditorState) => T): T {
  return useStore(useEditor().store, select);
}

/** The deployment that a view of runs shows: the chosen one, else the graph's; on a page without a graph any. */
export function useDeploymentShown(chosen: string | null, alone: boolean): DeploymentShown | null {
  const graph = useEditorState((state) => state.name);
  const deployments = useEditorState((state) => state.deployments);
  const scratch = useEditorState((state) => state.scratch);
  const own = deployments[chosen ?? scratch?.id ?? graph] ?? deploymentOf(deployments, graph);
  return own ?? (alone ? (Object.values(deployments)[0] ?? null) : null);
}
