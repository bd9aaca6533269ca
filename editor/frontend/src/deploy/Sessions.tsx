// The sessions of a deployment, and the button to end one.
import { useCallback, useEffect, useState } from "react";
import { ApiError, call } from "../api/client";
import type { DeploymentShown } from "../messages/answers";
import { useEditor } from "../store/react";
import { Button, Dialog } from "../ui/kit";
import { Table } from "../ui/Table";
import { plural, showAge, showBytes } from "../ui/words";
import { strings } from "../strings";

const EVERY_MS = 3000;

interface SessionShown {
  name: string;
  run: string | null;
  waiting: number;
  bytes: number;
  idle: number;
  ttl: number;
  ending: boolean;
}

interface Held {
  bytes: number;
  sessions: SessionShown[];
}

/** Nothing where no task keeps a session. */
export function Sessions({ deployment }: { deployment: DeploymentShown }) {
  const editor = useEditor();
  const keeps = useKeeping(deployment);
  const [held, refresh] = useHeld(deployment.id, keeps.length > 0);
  const [asking, ask] = useState<SessionShown | null>(null);
  if (keeps.length === 0 || held === null) return null;
  const end = async (name: string) => {
    ask(null);
    try {
      await call(`/v1/sessions/${encodeURIComponent(deployment.id)}/${encodeURIComponent(name)}`, {
        method: "DELETE",
      });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      editor.say(error.message, "error");
    }
    await refresh();
  };
  return (
    <section className="sessions" aria-label={strings.deploy.sessions}>
      <h3>
        {strings.deploy.sessions}
        {held.sessions.length > 0 && <span className="quiet">{strings.deploy.inTotal(showBytes(held.bytes))}</span>}
      </h3>
      {held.sessions.length === 0 ? (
        <p className="quiet">{strings.deploy.noSessionIsOpen(keeps.join(" or "))}</p>
      ) : (
        <Table
          columns={[
            strings.deploy.session,
            strings.deploy.now,
            strings.deploy.memory,
            strings.deploy.expires,
            { "aria-label": strings.deploy.endIt },
          ]}
        >
          <tbody>
            {held.sessions.map((session) => (
              <tr key={session.name}>
                <td className="name">{session.name}</td>
                <td>{nowOf(session)}</td>
                <td className="number">{showBytes(session.bytes)}</td>
                <td className="number">
                  {session.run ? "–" : strings.deploy.in(showAge(session.ttl - session.idle))}
                </td>
                <td>
                  <Button
                    aria-label={strings.deploy.end(session.name)}
                    disabled={session.ending}
                    onClick={() => ask(session)}
                  >
                    {strings.deploy.end2}
                  </Button>
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
      {asking && <Confirm session={asking} onClose={() => ask(null)} onYes={() => void end(asking.name)} />}
    </section>
  );
}

function nowOf({ run, waiting, idle, ending }: SessionShown): string {
  if (ending) return "ending";
  if (run === null) return strings.deploy.idle(showAge(idle));
  return waiting > 0 ? strings.deploy.runningWaiting(waiting) : "running";
}

function Confirm({ session, onClose, onYes }: { session: SessionShown; onClose: () => void; onYes: () => void }) {
  const { name, run, waiting } = session;
  const busy = Number(run !== null) + waiting;
  const footer = (
    <>
      <Button onClick={onClose}>{strings.deploy.cancel}</Button>
      <Button kind="danger" onClick={onYes}>
        {strings.deploy.endIt}
      </Button>
    </>
  );
  return (
    <Dialog title={strings.deploy.endThisSession} onClose={onClose} footer={footer}>
      <p>
        {strings.deploy.theState} <b>{name}</b> {strings.deploy.isFreed}
        {busy > 0 && strings.deploy.onceOfItEnded(plural(busy, "request"))}
        {strings.deploy.aClientThatUses}
      </p>
    </Dialog>
  );
}

/** The tasks that keep sessions. */
function useKeeping({ id, digest, tasks }: DeploymentShown): string[] {
  const [found, setFound] = useState<string[]>([]);
  const some = tasks.length > 0;
  useEffect(() => {
    const gone = new AbortController();
    setFound([]);
    if (some)
      void asked<{ name: string; session: boolean }[]>(`/v1/tasks/${encodeURIComponent(id)}`, gone.signal).then(
        (told) => told && setFound(told.filter((task) => task.session).map((task) => task.name)),
      );
    return () => gone.abort();
  }, [id, digest, some]);
  return found;
}

/** Asked again every few seconds while it is looked at; null: not known. */
function useHeld(id: string, wanted: boolean): [Held | null, () => Promise<void>] {
  const [held, setHeld] = useState<Held | null>(null);
  const refresh = useCallback(
    async (signal?: AbortSignal) => {
      const told = await asked<Held>(`/v1/sessions/${encodeURIComponent(id)}`, signal);
      if (!signal?.aborted) setHeld(told);
    },
    [id],
  );
  useEffect(() => {
    if (!wanted) return;
    const gone = new AbortController();
    void refresh(gone.signal);
    const timer = setInterval(() => !document.hidden && void refresh(gone.signal), EVERY_MS);
    return () => {
      clearInterval(timer);
      gone.abort();
    };
  }, [refresh, wanted]);
  return [held, refresh];
}

async function asked<T>(path: string, signal?: AbortSignal): Promise<T | null> {
  try {
    return (await call<T>(path, signal ? { signal } : {})).value;
  } catch (error) {
    if (error instanceof ApiError || (error instanceof DOMException && error.name === "AbortError")) return null;
    throw error;
  }
}
