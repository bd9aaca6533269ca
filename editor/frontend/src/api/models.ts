// Which of OpenAI's routes a deployment serves, and which of its tasks each.
import { useEffect, useState } from "react";
import { ApiError, call } from "./client";

/** Route -> tasks, the default first. */
export type Routes = Readonly<Record<string, readonly string[]>>;

const NONE: Routes = {};
const WORDS: Record<string, string> = {
  "chat.completions": "chat",
  "images.generations": "images",
  "images.edits": "edits",
  "audio.speech": "speech",
  realtime: "realtime",
};

/** `OpenAI chat, images`; empty where it serves none. */
export function routesInWords(routes: Routes): string {
  const words = Object.keys(routes).map((route) => WORDS[route] ?? route);
  return words.length > 0 ? `OpenAI ${words.join(", ")}` : "";
}

/** Empty until the service has told; `version` changes with the graph that runs. */
export function useRoutes(deployment: string, version: string | null): Routes {
  const [found, setFound] = useState<{ of: string; routes: Routes } | null>(null);
  const of = `${deployment} ${version}`;
  useEffect(() => {
    const gone = new AbortController();
    void read(deployment, gone.signal).then((routes) => !gone.signal.aborted && setFound({ of, routes }));
    return () => gone.abort();
  }, [deployment, of]);
  return found?.of === of ? found.routes : NONE;
}

async function read(deployment: string, signal: AbortSignal): Promise<Routes> {
  try {
    const path = `/v1/models/${encodeURIComponent(deployment)}`;
    return (await call<{ routes: Routes }>(path, { signal })).value.routes;
  } catch (error) {
    if (error instanceof ApiError || (error instanceof DOMException && error.name === "AbortError")) return NONE;
    throw error;
  }
}
