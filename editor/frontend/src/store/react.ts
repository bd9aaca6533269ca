// The editor inside React.
import { createContext, useContext } from "react";
import { useStore } from "zustand";
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
