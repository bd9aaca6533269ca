// Where the service's home and its token are on its machine, for those who may know.
import { useEffect, useState } from "react";
import { ApiError, call } from "./client";

export interface AccessFound {
  /** null: programs look there by themselves, or it isn't known. */
  home: string | null;
  /** null: the service was given its token, or it isn't known. */
  tokenFile: string | null;
}

interface AccessShown {
  home: string;
  own_home: boolean;
  token_file: string | null;
}

const UNKNOWN: AccessFound = { home: null, tokenFile: null };

/** Nothing is known until the service has told. */
export function useAccess(): AccessFound {
  const [found, setFound] = useState(UNKNOWN);
  useEffect(() => {
    const gone = new AbortController();
    void readAccess(gone.signal).then((told) => !gone.signal.aborted && setFound(told));
    return () => gone.abort();
  }, []);
  return found;
}

export async function readAccess(signal?: AbortSignal): Promise<AccessFound> {
  try {
    const { value } = await call<AccessShown>("/api/v1/studio/access", signal ? { signal } : {});
    return { home: value.own_home ? value.home : null, tokenFile: value.token_file };
  } catch (error) {
    if (error instanceof ApiError || (error instanceof DOMException && error.name === "AbortError")) return UNKNOWN;
    throw error;
  }
}
