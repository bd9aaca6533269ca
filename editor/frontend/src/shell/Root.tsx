// The root view: loads the document, keeps the session mounted while it is shown, and fills the window.
import { useCallback, useEffect, useLayoutEffect, useRef, useState, type ReactNode } from "react";
import { App } from "./App";
import { ApiError } from "../api/client";
import { openSession, type Session } from "../session/session";
import { EditorContext } from "../store/react";
import { useDensity } from "../store/preferences";
import type { Tab } from "../store/types";
import { Button, Empty } from "../ui/kit";
import { Boundary } from "./frame/Boundary";
import { PlayPage } from "./pages/PlayPage";
import { SettingsPage } from "./pages/SettingsPage";
import { TracePage } from "./pages/TracePage";
import { emitter, type Emit } from "./host/emit";
import { cover, fill } from "./host/fill";
import { SessionContext } from "../session/react";
import { strings } from "../strings";

/** The data from Python; see `walkgraph_editor/component.py`. */
export interface Data {
  v: 1;
  mode: "edit" | "play" | "trace" | "settings";
  graph?: string;
  deployment?: string;
  tab?: Tab | null;
  load: number;
  /** The page's script wants to know how the document stands. */
  report?: boolean;
}

interface RootProps {
  data: Data;
  dark: boolean;
  emit: Emit;
}

export function Root({ data, dark, emit }: RootProps) {
  const root = useRef<HTMLDivElement>(null);
  const [focused, focus] = useState(false);
  const density = useDensity();
  const toggleFocus = useCallback(() => focus((now) => !now), []);
  useLayoutEffect(() => (root.current ? fill(root.current) : undefined), []);
  useLayoutEffect(() => (focused && root.current ? cover(root.current) : undefined), [focused]);
  return (
    <div ref={root} className={`wg wg-root ${density} ${dark ? "dark" : ""} ${focused ? "focused" : ""}`}>
      <Boundary what={strings.shell.theEditor}>
        {data.mode === "play" ? (
          <PlayPage key={data.deployment} deployment={data.deployment} />
        ) : data.mode === "trace" ? (
          <TracePage key={data.deployment} deployment={data.deployment} />
        ) : data.mode === "settings" ? (
          <SettingsPage />
        ) : (
          <Document key={data.graph} data={data} emit={emit} toggleFocus={toggleFocus} />
        )}
      </Boundary>
    </div>
  );
}

interface DocumentProps {
  data: Data;
  emit: Emit;
  toggleFocus: () => void;
}

function Document({ data, emit, toggleFocus }: DocumentProps) {
  const name = data.graph ?? "";
  const [session, setSession] = useState<Session | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [attempt, again] = useState(0);
  useEffect(() => {
    let gone = false;
    setProblem(null);
    openSession(name).then(
      (opened) => !gone && setSession(opened),
      (error: unknown) => !gone && setProblem(error instanceof ApiError ? error.message : String(error)),
    );
    return () => {
      gone = true;
    };
  }, [name, attempt]);
  useEffect(() => {
    if (!session) return;
    session.mount();
    return () => void session.unmount();
  }, [session]);
  const { report = false } = data;
  useEffect(() => (session && report ? emitter(session.editor, emit) : undefined), [session, report, emit]);
  useAsked(session, data);
  if (problem) return <Failed name={name} problem={problem} again={() => again(attempt + 1)} />;
  if (!session) return <Loading name={name} />;
  return (
    <Shown session={session}>
      <App toggleFocus={toggleFocus} />
    </Shown>
  );
}

/** Python asks for a tab, or for a fresh look at the service; each time once. */
function useAsked(session: Session | null, data: Data): void {
  const { tab, load } = data;
  const loaded = useRef(load);
  useEffect(() => {
    if (session && tab) session.editor.see({ tab });
  }, [session, tab]);
  useEffect(() => {
    if (!session || load === loaded.current) return;
    loaded.current = load;
    void session.persistence.follow();
  }, [session, load]);
}

function Shown({ session, children }: { session: Session; children: ReactNode }) {
  return (
    <SessionContext value={session}>
      <EditorContext value={session.editor}>{children}</EditorContext>
    </SessionContext>
  );
}

function Loading({ name }: { name: string }) {
  return (
    <div className="wg-loading" role="status">
      <span className="spinner" aria-hidden /> {strings.shell.opening(name)}
    </div>
  );
}

function Failed({ name, problem, again }: { name: string; problem: string; again: () => void }) {
  return (
    <div className="wg-loading" role="alert">
      <Empty title={strings.shell.cantBeOpened(name)}>
        <p>{problem}</p>
        <Button kind="primary" onClick={again}>
          {strings.shell.tryAgain}
        </Button>
      </Empty>
    </div>
  );
}
