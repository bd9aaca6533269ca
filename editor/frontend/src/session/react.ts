// The session inside React; panels need the editor alone.
import { createContext, useContext } from "react";
import type { Session } from "./session";

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error("no session is open");
  return session;
}
