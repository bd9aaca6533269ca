// Copies a text, and says for a moment that it did.
import { Check, Copy, TriangleAlert } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { copyText } from "./handing";
import { Button, IconButton } from "./kit";
import { strings } from "../strings";

/** How long it says how it went, in ms. */
const SAID_MS = 1600;
const LONG_MS = 6000;

const SAID = { copied: strings.ui.copied, refused: strings.ui.thisBrowserDoesNotLet };
const ICONS = { copied: Check, refused: TriangleAlert };

/** `label`: its accessible name; `words`: the word beside its icon, without which it is the icon alone. */
export function CopyButton({ text, label, words }: { text: string; label: string; words?: string }) {
  const root = useRef<HTMLSpanElement>(null);
  const [went, setWent] = useState<"copied" | "refused" | null>(null);
  useEffect(() => {
    if (went === null) return;
    const timer = setTimeout(() => setWent(null), went === "copied" ? SAID_MS : LONG_MS);
    return () => clearTimeout(timer);
  }, [went]);
  const copy = async () => setWent((await copyText(text, root.current)) ? "copied" : "refused");
  const Icon = went === null ? Copy : ICONS[went];
  const said = went === null ? null : SAID[went];
  return (
    <span ref={root}>
      {words === undefined ? (
        <IconButton label={said ?? label} disabled={!text} onClick={() => void copy()}>
          <Icon size={14} aria-hidden />
        </IconButton>
      ) : (
        <Button aria-label={said ?? label} title={said ?? label} disabled={!text} onClick={() => void copy()}>
          <Icon size={14} aria-hidden /> {went === "copied" ? strings.ui.copied : words}
        </Button>
      )}
      <span className="visually-hidden" role="status">
        {said}
      </span>
    </span>
  );
}
