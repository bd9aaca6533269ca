// Taps set and taken away: what menus, keys and buttons do. What the service refuses is said.
import { ask } from "../store/ask";
import { shownOn } from "../store/deployments";
import type { Editor } from "../store/editor";
import { tapsAt, watchOf, type TapShown, type WatchStore } from "../store/watch";
import type { MenuEntry } from "../ui/kit";
import { cards, closeCard, openCard } from "./cards";
import { edgesOf, type Place } from "./places";
import { strings } from "../strings";

const NOT_DEPLOYED = strings.taps.deployTheGraphFirstTaps;

function storeOf(editor: Editor): WatchStore | null {
  const deployment = shownOn(editor.state);
  return deployment && watchOf(deployment.id);
}

/** Arm one, with its card, where there is none; else remove it. */
export async function toggleTap(editor: Editor, place: Place): Promise<void> {
  const store = storeOf(editor);
  if (!store) return editor.say(NOT_DEPLOYED);
  const [armed] = tapsAt(store.get(), place.walk, place.source, place.to);
  if (armed) return removeTap(editor, armed.id);
  await ask(editor, async () => openCard((await store.addTap({ ...place })).id));
}

export async function removeTap(editor: Editor, tap: string): Promise<void> {
  const store = storeOf(editor);
  closeCard(tap);
  if (store) await ask(editor, () => store.removeTap(tap));
}

export async function removeTaps(editor: Editor): Promise<void> {
  const store = storeOf(editor);
  if (!store) return;
  for (const { id } of store.get().taps) closeCard(id);
  await ask(editor, () => store.removeTaps());
}

export async function lookEvery(editor: Editor, tap: TapShown, interval: number): Promise<void> {
  const store = storeOf(editor);
  if (store) await ask(editor, () => store.lookEvery(tap.id, interval));
}

/** At one run alone, or at all with null: another tap in its place, with its card; the old one goes once it is there. */
export async function lookAtRun(editor: Editor, tap: TapShown, run: string | null): Promise<void> {
  const store = storeOf(editor);
  if (!store) return;
  const { walk, source, to, preview, interval, id } = tap;
  await ask(editor, async () => {
    const made = await store.addTap({ walk, source, to, preview, run, interval });
    const card = cards.getState()[id];
    if (card) openCard(made.id, card);
    closeCard(id);
    await store.removeTap(id);
  });
}

/** Show the place on its canvas. */
export function showTap(editor: Editor, place: Place): void {
  const [edge] = edgesOf(editor.graph, place);
  editor.open({ kind: "walk", walk: place.walk, inside: null }, edge === undefined ? [] : [edge]);
}

/** Entries of an edge's menu. */
export function tapEntries(editor: Editor, place: Place | null): MenuEntry[] {
  if (!place) return [];
  const store = storeOf(editor);
  const [armed] = store ? tapsAt(store.get(), place.walk, place.source, place.to) : [];
  if (!armed) return [{ label: strings.taps.tapThisEdgeSee, keys: "T", run: () => void toggleTap(editor, place) }];
  return [
    { label: strings.taps.showTheTapsValues, run: () => openCard(armed.id) },
    { label: strings.taps.removeTheTap, keys: "T", run: () => void removeTap(editor, armed.id) },
  ];
}
