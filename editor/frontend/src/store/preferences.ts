// The user's preferences in this browser: sizes of panes, keys, what the canvas shows. One store for all documents.
import { useStore } from "zustand";
import { createStore } from "zustand/vanilla";
import type { Overrides } from "../ui/keys";

export interface Panes {
  /** Pixels. */
  left: number;
  right: number;
  bottom: number;
  leftOpen: boolean;
  rightOpen: boolean;
  bottomOpen: boolean;
  leftTab: "palette" | "outline";
  rightTab: "inspector" | "versions" | "code";
}

export interface Preferences {
  panes: Panes;
  keys: Overrides;
  /** The canvas draws who reads what others left in states. */
  states: boolean;
  density: Density;
}

export type Density = "comfortable" | "compact";

const KEY = "walkgraph:preferences";
const DEFAULTS: Preferences = {
  panes: {
    left: 240,
    right: 320,
    bottom: 180,
    leftOpen: true,
    rightOpen: true,
    bottomOpen: false,
    leftTab: "palette",
    rightTab: "inspector",
  },
  keys: {},
  states: false,
  density: "comfortable",
};

export const preferences = createStore<Preferences>(() => load());

preferences.subscribe((state) => {
  try {
    localStorage.setItem(KEY, JSON.stringify(state));
  } catch {
    // A browser that keeps nothing forgets them with the page.
  }
});

// Another tab has written others: what is written here next must not undo them.
globalThis.window?.addEventListener("storage", ({ key }) => {
  if (key === KEY) preferences.setState(load());
});

export function usePanes(): Panes {
  return useStore(preferences, (state) => state.panes);
}

export function useKeys(): Overrides {
  return useStore(preferences, (state) => state.keys);
}

export function useShowsStates(): boolean {
  return useStore(preferences, ({ states }) => states);
}

export function showStates(states: boolean): void {
  preferences.setState({ states });
}

export function useDensity(): Density {
  return useStore(preferences, ({ density }) => density);
}

export function setDensity(density: Density): void {
  preferences.setState({ density });
}

export function setPanes(panes: Partial<Panes>): void {
  preferences.setState((state) => ({ panes: { ...state.panes, ...panes } }));
}

export function setKeys(keys: Overrides): void {
  preferences.setState({ keys });
}

function load(): Preferences {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Preferences>;
    const { panes, keys, states, density } = kept;
    return {
      panes: { ...DEFAULTS.panes, ...panes },
      keys: { ...keys },
      states: states === true,
      density: density === "compact" ? "compact" : "comfortable",
    };
  } catch {
    return DEFAULTS;
  }
}
