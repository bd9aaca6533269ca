// Text on its way into the document: kept as typed until it is valid and entered.
import { useEffect, useRef, useState } from "react";

/** Takes the text into the document; answers why it can't, or null. */
export type Enter = (text: string) => string | null;

export interface Draft {
  text: string;
  error: string | null;
  type: (text: string) => void;
  /** Enter what was typed. False: it was refused. */
  settle: () => boolean;
  /** Back to what the document has. */
  discard: () => void;
}

/**
 * `live` enters at every keystroke (free text), otherwise at Enter and when the field is left. What is refused stays
 * in the field with the reason. A field that goes away while something is typed enters it.
 */
export function useDraft(value: string, enter: Enter, live = false): Draft {
  const [typed, setTyped] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const latest = useRef({ typed, error, value, enter });
  useEffect(() => {
    latest.current = { typed, error, value, enter };
  });
  const take = (text: string) => {
    const refused = text === value ? null : enter(text);
    setError(refused);
    setTyped(refused === null ? null : text);
    latest.current = { ...latest.current, typed: null };
    return refused === null;
  };
  useEffect(
    () => () => {
      const { typed, error, value, enter } = latest.current;
      if (typed !== null && typed !== value && error === null) enter(typed);
    },
    [],
  );
  return {
    text: typed ?? value,
    error,
    type: (text) => {
      if (live) return void take(text);
      setTyped(text);
      setError(null);
    },
    settle: () => typed === null || take(typed),
    discard: () => {
      setTyped(null);
      setError(null);
    },
  };
}
