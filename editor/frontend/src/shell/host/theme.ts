// Dark or light: what this browser has chosen, and what Streamlit's theme shows. The page's script gives Streamlit the
// choice, at once and whichever page is loaded.
import { useSyncExternalStore } from "react";

/** Streamlit's names. */
export const THEMES = ["System", "Light", "Dark"] as const;
export type Theme = (typeof THEMES)[number];

/** Also read by `walkgraph_editor/assets/connection.js`, which an event of this name tells of another choice. */
const KEY = "walkgraph:theme";

export function chosenTheme(): Theme {
  try {
    return THEMES.find((theme) => theme === localStorage.getItem(KEY)) ?? "System";
  } catch {
    return "System";
  }
}

/** Every page and tab of this browser shows it at once; what is open stays as it is. */
export function chooseTheme(theme: Theme): void {
  localStorage.setItem(KEY, theme);
  dispatchEvent(new Event(KEY));
}

export function useChosenTheme(): Theme {
  return useSyncExternalStore(watchChoice, chosenTheme);
}

/** Chosen here, or in another tab. */
function watchChoice(changed: () => void): () => void {
  const types = [KEY, "storage"];
  types.forEach((type) => addEventListener(type, changed));
  return () => types.forEach((type) => removeEventListener(type, changed));
}

export function isDark(element: Element): boolean {
  const color = getComputedStyle(element).getPropertyValue("--st-background-color").trim();
  const rgb = parse(color);
  return rgb ? luminance(rgb) < 0.4 : matchMedia("(prefers-color-scheme: dark)").matches;
}

function parse(color: string): [number, number, number] | null {
  const hex = /^#([0-9a-f]{3,8})$/i.exec(color)?.[1];
  if (hex) {
    const wide = hex.length < 6 ? [...hex].map((digit) => digit + digit).join("") : hex;
    return [0, 2, 4].map((at) => parseInt(wide.slice(at, at + 2), 16)) as [number, number, number];
  }
  const numbers = /^rgba?\(([^)]+)\)$/i
    .exec(color)?.[1]
    ?.split(/[\s,/]+/)
    .map(Number);
  return numbers && numbers.length >= 3 ? (numbers.slice(0, 3) as [number, number, number]) : null;
}

/** Luminance of 0..255 channels, from 0 (black) to 1. */
function luminance([r, g, b]: [number, number, number]): number {
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
}
