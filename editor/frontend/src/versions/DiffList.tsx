// A readable list of differences between two graphs, also used by the Deploy view and the conflict dialog.
import { Crosshair } from "lucide-react";
import { useMemo } from "react";
import { diff, type Difference } from "../document/diff";
import type { GraphDocument } from "../document/types";
import { Button, Prose } from "../ui/kit";
import { brief, counts, fieldChanges, groups, headline } from "./changes";
import { strings } from "../strings";

const SIGNS = { added: "+", removed: "−", changed: "~" } as const;

interface DiffListProps {
  before: GraphDocument;
  after: GraphDocument;
  /** Offer to show these on the canvas; without it nothing is offered. */
  onShow?: (differences: readonly Difference[]) => void;
}

/** Reads top down: how much differs, then group by group what. Fits any width from 240 pixels. */
export function DiffList({ before, after, onShow }: DiffListProps) {
  const differences = useMemo(() => diff(before, after), [before, after]);
  const shown = useMemo(() => groups(differences), [differences]);
  if (differences.length === 0)
    return <p className="wg-diff-same">{strings.versions.noDifferenceApartFromPositions}</p>;
  return (
    <div className="wg-diff">
      <Totals differences={differences} />
      {shown.map((group) => (
        <section key={group.key} aria-label={group.title}>
          <header>
            <h3>{group.title}</h3>
            {onShow && group.key !== "task" && (
              <Button kind="quiet" onClick={() => onShow(group.differences)}>
                <Crosshair size={13} aria-hidden /> {strings.versions.showOnTheCanvas}
              </Button>
            )}
          </header>
          <ul>
            {group.differences.map((difference, index) => (
              <DifferenceRow key={`${difference.pointer} ${index}`} difference={difference} />
            ))}
          </ul>
        </section>
      ))}
    </div>
  );
}

function Totals({ differences }: { differences: readonly Difference[] }) {
  const found = counts(differences);
  return (
    <p className="wg-diff-totals">
      {(["added", "removed", "changed"] as const)
        .filter((kind) => found[kind] > 0)
        .map((kind) => (
          <span key={kind} className={`wg-sign ${kind}`}>
            <b aria-hidden>{SIGNS[kind]}</b> {found[kind]} {kind}
          </span>
        ))}
    </p>
  );
}

function DifferenceRow({ difference }: { difference: Difference }) {
  const { kind, before, after } = difference;
  const { text, listed } = headline(difference);
  const fields = listed ? fieldChanges(before, after) : [];
  return (
    <li className={kind}>
      <span className={`wg-sign ${kind}`} title={kind}>
        <b aria-hidden>{SIGNS[kind]}</b>
        <span className="visually-hidden">{kind}</span>
      </span>
      <div>
        <span className="text">
          <Prose text={text} />
        </span>
        {fields.length > 0 && (
          <ul className="fields">
            {fields.map((field) => (
              <li key={field.path}>
                {field.path && <code className="path">{field.path}</code>}
                <code className="before">{brief(field.before)}</code>
                <span aria-label={strings.versions.becomes}>→</span>
                <code className="after">{brief(field.after)}</code>
              </li>
            ))}
          </ul>
        )}
      </div>
    </li>
  );
}
