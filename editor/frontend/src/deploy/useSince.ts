// For how long workers are in their states, as seen from here.
import { useEffect, useRef, useState } from "react";
import type { WorkerShown } from "../api/types";

const TICK_MS = 1000;

/** Rank -> seconds in its state: what the service says (`since`), else since it was first seen so in this page. */
export function useSince(id: string, ranks: readonly WorkerShown[]): (rank: number) => number {
  const seen = useRef(new Map<string, { state: string; at: number }>());
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  for (const { rank, state, since } of ranks) {
    const key = `${id} ${rank}`;
    if (seen.current.get(key)?.state !== state)
      seen.current.set(key, { state, at: typeof since === "number" ? since : Date.now() / 1000 });
  }
  return (rank) => now - (seen.current.get(`${id} ${rank}`)?.at ?? now);
}
