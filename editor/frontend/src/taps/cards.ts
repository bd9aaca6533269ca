// Which taps have a card open, and where it stands; for as long as the page lives.
import { useStore } from "zustand";
import { createStore } from "zustand/vanilla";

export interface Card {
  /** From the place that is tapped; of a pinned one from the canvas's corner. In pixels of the screen. */
  at: readonly [number, number];
  /** It stays where it is, whatever the canvas shows. */
  pinned: boolean;
  /** A person put it there: it doesn't make way. */
  moved?: true;
}

/** From the place, of a new card. */
export const FIRST: readonly [number, number] = [44, 28];
const STAGGER = 22;

/** By the tap's id. */
export const cards = createStore<Readonly<Record<string, Card>>>(() => ({}));

export function useCards(): Readonly<Record<string, Card>> {
  return useStore(cards);
}

export function openCard(tap: string, card?: Card): void {
  if (cards.getState()[tap]) return;
  const step = (Object.keys(cards.getState()).length % 6) * STAGGER;
  cards.setState({ [tap]: card ?? { at: [FIRST[0] + step, FIRST[1] + step], pinned: false } });
}

export function closeCard(tap: string): void {
  const { [tap]: _gone, ...rest } = cards.getState();
  cards.setState(rest, true);
}

export function moveCard(tap: string, at: readonly [number, number]): void {
  const card = cards.getState()[tap];
  if (card) cards.setState({ [tap]: { ...card, at, moved: true } });
}

/** `at`: where it stands from the canvas's corner, or from its place, from now on. */
export function pinCard(tap: string, pinned: boolean, at: readonly [number, number]): void {
  if (cards.getState()[tap]) cards.setState({ [tap]: { at, pinned } });
}
