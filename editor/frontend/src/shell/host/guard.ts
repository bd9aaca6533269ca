// Streamlit takes a bare R (rerun) and C (clear caches) pressed anywhere outside of a text; inside the editor they are
// the editor's.
const THEIRS = ["r", "c"];

/** Keep them from Streamlit where they come from inside `place`. Returns how to stop. */
export function guard(place: HTMLElement): () => void {
  const stop = (event: KeyboardEvent) => {
    const bare = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (bare && THEIRS.includes(event.key.toLowerCase()) && event.composedPath().includes(place))
      event.stopImmediatePropagation();
  };
  const types = ["keydown", "keyup", "keypress"] as const;
  for (const type of types) window.addEventListener(type, stop, true);
  return () => {
    for (const type of types) window.removeEventListener(type, stop, true);
  };
}
