// For how long workers are in their states, as seen from here.
import { useEffect, useRef, useState } from "react";
import type { WorkerShown } from "../messages/answers";

const TICK_MS = 1000;

/** Rank -> seconds in its state, from what the service says (`since`) or since it was seen to change; null: unknown. */
export function useSince(id: string, ranks: readonly WorkerShown[]): (rank: number) => number | null {
  const seen = useRef(new Map<string, { state: string; at: number | null }>());
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  for (const { rank, state, since } of ranks) {
    const key = `${id} ${rank}`;
    const before = seen.current.get(key);
    if (before?.state === state) continue;
    const told = typeof since === "number" ? since : null;
    seen.current.set(key, { state, at: told ?? (before ? Date.now() / 1000 : null) });
  }
  return (rank) => {
    const at = seen.current.get(`${id} ${rank}`)?.at ?? null;
    return at === null ? null : now - at;
  };
}
