// The keyboard in one table: what the shell listens to, what the sheet shows, what a user may change.

import { strings } from "../strings";

export type Action =
  | "undo"
  | "redo"
  | "version"
  | "find"
  | "run"
  | "deploy"
  | "debug.break"
  | "debug.resume"
  | "debug.step"
  | "debug.iteration"
  | "focus"
  | "sheet"
  | "tab.graph"
  | "tab.tasks"
  | "tab.placement"
  | "tab.deploy"
  | "tab.play"
  | "tab.trace";

export interface Binding {
  action: Action;
  label: string;
  group: "Document" | "Run" | "View";
  /** Each as `Mod+Shift+Z`; Mod is Ctrl, or Cmd on a Mac. */
  keys: readonly string[];
  /** Also while a text is typed. */
  typing?: boolean;
}

export const BINDINGS: readonly Binding[] = [
  { action: "undo", label: strings.ui.undo, group: "Document", keys: ["Mod+Z"] },
  { action: "redo", label: strings.ui.redo, group: "Document", keys: ["Mod+Shift+Z", "Mod+Y"] },
  { action: "version", label: strings.ui.saveAVersion, group: "Document", keys: ["Mod+S"], typing: true },
  { action: "find", label: strings.ui.findAnything, group: "Document", keys: ["Mod+K"], typing: true },
  { action: "run", label: strings.ui.runWhatIsDrawn, group: "Run", keys: ["Mod+Enter"], typing: true },
  { action: "deploy", label: strings.ui.deploy, group: "Run", keys: ["Mod+Shift+D"], typing: true },
  { action: "debug.break", label: strings.ui.setOrClearABreakpoint, group: "Run", keys: ["F9"] },
  {
    action: "debug.resume",
    label: strings.ui.resumeAPausedRunPause,
    group: "Run",
    keys: ["F8"],
    typing: true,
  },
  { action: "debug.step", label: strings.ui.stepMakeOneCall, group: "Run", keys: ["F10"], typing: true },
  {
    action: "debug.iteration",
    label: strings.ui.stepToTheNextIteration,
    group: "Run",
    keys: ["Shift+F10"],
    typing: true,
  },
  { action: "tab.graph", label: strings.ui.graph, group: "View", keys: ["Alt+1"], typing: true },
  { action: "tab.tasks", label: strings.ui.tasks, group: "View", keys: ["Alt+2"], typing: true },
  { action: "tab.placement", label: strings.ui.placement, group: "View", keys: ["Alt+3"], typing: true },
  { action: "tab.deploy", label: strings.ui.deploy, group: "View", keys: ["Alt+4"], typing: true },
  { action: "tab.play", label: strings.ui.play, group: "View", keys: ["Alt+5"], typing: true },
  { action: "tab.trace", label: strings.ui.trace, group: "View", keys: ["Alt+6"], typing: true },
  { action: "focus", label: strings.ui.focusShowOnlyTheEditor, group: "View", keys: ["Mod+\\"] },
  { action: "sheet", label: strings.ui.thisList, group: "View", keys: ["?"] },
];

/** Action -> its keys where the user chose others; an empty list: none. */
export type Overrides = Partial<Record<Action, readonly string[]>>;

export interface Pressed {
  key: string;
  code: string;
  ctrlKey: boolean;
  metaKey: boolean;
  shiftKey: boolean;
  altKey: boolean;
}

const MAC = typeof navigator !== "undefined" && /Mac|iP(hone|ad)/.test(navigator.userAgent);
const MODIFIERS = ["Control", "Meta", "Shift", "Alt", "AltGraph"];

/** `Mod+Shift+Z` for what was pressed; null for a modifier alone. */
export function chordOf(event: Pressed, mac = MAC): string | null {
  if (MODIFIERS.includes(event.key)) return null;
  const digit = /^(?:Digit|Numpad)(\d)$/.exec(event.code)?.[1];
  // With Alt a keyboard may write another sign; a number row is known by its place.
  const key = digit && event.altKey ? digit : event.key === " " ? "Space" : upper(event.key);
  const sign = key.length === 1 && !/[A-Z0-9]/.test(key);
  const mod = mac ? event.metaKey : event.ctrlKey;
  const parts = [mod && "Mod", event.altKey && "Alt", event.shiftKey && !sign && "Shift", key];
  return parts.filter(Boolean).join("+");
}

/** The action of a chord; null for none. */
export function actionOf(chord: string | null, typing: boolean, overrides: Overrides = {}): Action | null {
  if (chord === null) return null;
  const found = BINDINGS.find((binding) => (overrides[binding.action] ?? binding.keys).includes(chord));
  if (!found || (typing && (!found.typing || !/Mod|Alt|\bF\d/.test(chord)))) return null;
  return found.action;
}

/** As people write it: `Ctrl+Shift+Z`, `⇧⌘Z`. */
export function shown(chord: string, mac = MAC): string {
  if (!mac) return chord.replace("Mod", "Ctrl");
  const parts = chord.split("+");
  const sign = (part: string) => ({ Mod: "⌘", Shift: "⇧", Alt: "⌥", Enter: "↩" })[part] ?? part;
  const order = ["Alt", "Shift", "Mod"];
  return [...parts]
    .sort((a, b) => rank(a, order) - rank(b, order))
    .map(sign)
    .join("");
}

/** The first keys of an action, for tooltips; empty where it has none. */
export function hint(action: Action, overrides: Overrides = {}): string {
  const binding = BINDINGS.find((found) => found.action === action);
  const first = (overrides[action] ?? binding?.keys ?? [])[0];
  return first ? shown(first) : "";
}

/** The action that already has a chord, other than `action` itself. */
export function taken(chord: string, action: Action, overrides: Overrides): Binding | null {
  const others = BINDINGS.filter((binding) => binding.action !== action);
  return others.find((binding) => (overrides[binding.action] ?? binding.keys).includes(chord)) ?? null;
}

/** Ctrl or Cmd is held: a field enters what it has at Enter, and leaves the key to the page. */
export function isModified({ ctrlKey, metaKey }: { ctrlKey: boolean; metaKey: boolean }): boolean {
  return ctrlKey || metaKey;
}

/** True if the event comes from a text field. */
export function isTyping(path: readonly EventTarget[]): boolean {
  const target = path[0];
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement)
    return true;
  const boxes = ["checkbox", "radio", "range", "button", "submit", "color", "file"];
  return target instanceof HTMLInputElement && !boxes.includes(target.type);
}

function upper(key: string): string {
  return key.length === 1 ? key.toUpperCase() : key;
}

function rank(part: string, order: readonly string[]): number {
  const found = order.indexOf(part);
  return found < 0 ? order.length : found;
}
