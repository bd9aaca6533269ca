// The open graph as text: JSON made here, Python made by the service.
import { useEffect, useMemo, useState } from "react";
import { ApiError, call } from "../api/client";
import type { GraphDocument } from "../document/types";
import { useEditorState } from "../store/react";
import { pretty } from "./pretty";

/** After the last edit, in ms. */
const PAUSE_MS = 400;

/** Ends with a newline, as the file does. Numbers that nobody changed are written as they were read. */
export function useJson(graph: GraphDocument): string {
  const sources = useEditorState((state) => state.documents.sources);
  return useMemo(() => `${pretty(graph, sources)}\n`, [graph, sources]);
}

export type PythonCode = { text: string } | { failure: string; details: string[] } | null;

/** null: not known yet. */
export function usePython(graph: GraphDocument, wanted: boolean): PythonCode {
  const [code, setCode] = useState<PythonCode>(null);
  useEffect(() => {
    if (!wanted) return;
    const control = new AbortController();
    const timer = setTimeout(() => {
      const request = { method: "POST" as const, body: { graph }, signal: control.signal };
      call<{ text: string }>("/api/v1/graphs/python", request).then(
        ({ value }) => setCode(value),
        (error: unknown) => !control.signal.aborted && setCode(failureOf(error)),
      );
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [graph, wanted]);
  return code;
}

function failureOf(error: unknown): PythonCode {
  if (!(error instanceof ApiError)) return { failure: String(error), details: [] };
  const details = error.problems.map(({ pointer, message }) => {
    const place = pointer.replace(/^\/graph(?=\/|$)/, "");
    return place ? `\`${place}\` ${message}` : message;
  });
  return { failure: error.message, details };
}
