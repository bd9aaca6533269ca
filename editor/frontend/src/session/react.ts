// The session and the queue inside React; panels need the editor alone.
import { createContext, useContext, useEffect, useMemo } from "react";
import { useStore } from "zustand";
import type { QueueShown } from "../messages/answers";
import { Queue } from "./queue";
import type { Session } from "./session";

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error("no session is open");
  return session;
}

/** The queue of a deployment, kept up to date while it is shown. */
export function useQueue(deployment: string): { queue: Queue; told: QueueShown } {
  const queue = useMemo(() => new Queue(deployment), [deployment]);
  useEffect(() => {
    void queue.load();
    return queue.watch();
  }, [queue]);
  return { queue, told: useStore(queue.store) };
}
