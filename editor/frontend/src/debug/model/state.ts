// Debugging state of an editor in addition to the service's (`store/watch`): the selected paused run,
// what is shown of it, where the next run is to stop, and the comparison of a replay.
import { useStore } from "zustand";
import { createStore, type StoreApi } from "zustand/vanilla";
import type { Editor } from "../../store/editor";
import { useEditor } from "../../store/react";
import type { Spot } from "./breaks";
import type { Differences } from "./differences";

export type Pane = "paused" | "breakpoints" | "differences";

export type Comparison =
  | { phase: "working"; words: string; run: string }
  | { phase: "failed"; message: string; run: string }
  | { phase: "shown"; value: Differences; run: string };

export interface Debugging {
  /** The paused run that is looked at; null: the first. */
  run: string | null;
  /** The chosen one of its held calls; null: the first. */
  call: string | null;
  pane: Pane;
  open: boolean;
  /** The next run of the playground goes on to here and pauses. */
  upTo: Spot | null;
  comparison: Comparison | null;
}

const all = new WeakMap<Editor, StoreApi<Debugging>>();

export function debuggingOf(editor: Editor): StoreApi<Debugging> {
  let store = all.get(editor);
  if (!store) {
    store = createStore<Debugging>(() => ({
      run: null,
      call: null,
      pane: "paused",
      open: false,
      upTo: null,
      comparison: null,
    }));
    all.set(editor, store);
  }
  return store;
}

export function useDebugging<T>(select: (state: Debugging) => T): T {
  return useStore(debuggingOf(useEditor()), select);
}

export function showPane(editor: Editor, pane: Pane): void {
  debuggingOf(editor).setState({ pane, open: true });
}
