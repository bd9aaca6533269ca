// The note that was just made: it is written at once. Others don't take the focus when they are drawn, as by an undo.
let fresh: string | null = null;

export function writeAtOnce(id: string): void {
  fresh = id;
}

/** True once, for the item that was added last. */
export function isFresh(id: string): boolean {
  const found = fresh === id;
  if (found) fresh = null;
  return found;
}
