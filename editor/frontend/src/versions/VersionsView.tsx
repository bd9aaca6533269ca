// The versions of the open graph: kept ones, what differs between any two, and the way back.
import { Bookmark, RotateCcw } from "lucide-react";
import { useCallback, useEffect, useState, type FormEvent } from "react";
import { ApiError, call } from "../api/client";
import type { VersionEntry } from "../messages/answers";
import type { Difference } from "../document/diff";
import type { GraphDocument } from "../document/types";
import { withGraph } from "../store/editor";
import { useEditor, useEditorState } from "../store/react";
import { Button, Empty, Input, Select } from "../ui/kit";
import { ago, showTime } from "../ui/words";
import { DiffList } from "./DiffList";
import { useKeep, useVersion, type Loaded } from "./loading";
import { shownBy } from "./showing";
import { strings } from "../strings";

/** One side of the comparison: the number of a version, or the current graph. */
type Side = number | "draft";

export function VersionsView() {
  const name = useEditorState((state) => state.name);
  const { versions, failure, reload } = useVersions(name);
  const [before, setBefore] = useState<Side | null>(null);
  const [after, setAfter] = useState<Side>("draft");
  const chosen = before ?? versions?.[0]?.id ?? null;
  return (
    <div className="wg-versions">
      <div className="panes">
        <nav aria-label={strings.versions.versions}>
          <h2>{strings.versions.versions}</h2>
          <Keep onKept={reload} />
          {failure !== null && (
            <p className="failure" role="alert">
              {failure} <Button onClick={reload}>{strings.versions.tryAgain}</Button>
            </p>
          )}
          <VersionList
            versions={versions ?? []}
            before={chosen}
            after={after}
            onPick={(id) => {
              setBefore(id);
              setAfter("draft");
            }}
          />
        </nav>
        <main>
          {versions?.length === 0 && (
            <Empty title={strings.versions.noVersionSavedYet}>
              <p>{strings.versions.theDraftIsSavedAutomatically}</p>
            </Empty>
          )}
          {versions && chosen !== null && (
            <Comparison
              key={`${chosen} ${after}`}
              {...{ name, versions, after }}
              before={chosen}
              onPick={(from, to) => {
                setBefore(from);
                setAfter(to);
              }}
            />
          )}
        </main>
      </div>
    </div>
  );
}

function useVersions(name: string) {
  const [versions, setVersions] = useState<VersionEntry[] | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const reload = useCallback(() => {
    call<VersionEntry[]>(`/api/v1/graphs/${encodeURIComponent(name)}/versions`).then(
      ({ value }) => {
        setVersions(value);
        setFailure(null);
      },
      (error: unknown) => {
        // A graph that was never saved has no versions.
        const none = error instanceof ApiError && error.status === 404;
        if (none) setVersions([]);
        setFailure(
          none ? null : strings.versions.versionsCantBeListed(error instanceof Error ? error.message : String(error)),
        );
      },
    );
  }, [name]);
  useEffect(reload, [reload]);
  return { versions, failure, reload };
}

function Keep({ onKept }: { onKept: () => void }) {
  const [note, setNote] = useState("");
  const { keep, busy } = useKeep();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (await keep(note.trim())) {
      setNote("");
      onKept();
    }
  };
  return (
    <form className="keep" onSubmit={submit}>
      <Input
        aria-label={strings.versions.noteOfTheVersion}
        placeholder={strings.versions.noteOptional}
        maxLength={200}
        value={note}
        onChange={(event) => setNote(event.target.value)}
        onKeyDown={(event) => event.stopPropagation()}
      />
      <Button type="submit" kind="primary" disabled={busy}>
        <Bookmark size={14} aria-hidden /> {busy ? strings.versions.saving : strings.versions.saveVersion}
      </Button>
    </form>
  );
}

interface VersionListProps {
  versions: readonly VersionEntry[];
  before: Side | null;
  after: Side;
  onPick: (id: number) => void;
}

function VersionList({ versions, before, after, onPick }: VersionListProps) {
  const now = Date.now() / 1000;
  return (
    <ul>
      {versions.map((version) => {
        const role = version.id === before ? "compared" : version.id === after ? strings.versions.compared : "";
        return (
          <li key={version.id}>
            <button type="button" aria-current={role !== ""} onClick={() => onPick(version.id)}>
              <span className={`note ${version.note ? "" : "none"}`}>{version.note || strings.versions.noNote}</span>
              <time dateTime={new Date(version.created_at * 1000).toISOString()}>
                {ago(version.created_at, now)} · {showTime(version.created_at)}
              </time>
            </button>
          </li>
        );
      })}
    </ul>
  );
}

interface ComparisonProps {
  name: string;
  versions: readonly VersionEntry[];
  before: Side;
  after: Side;
  onPick: (before: Side, after: Side) => void;
}

function Comparison({ name, versions, before, after, onPick }: ComparisonProps) {
  const editor = useEditor();
  const draft = useEditorState((state) => state.documents.graph);
  const [left, right] = [useSide(name, before, draft), useSide(name, after, draft)];
  const show = (differences: readonly Difference[]) => {
    const shown = shownBy(editor.graph, differences);
    if (!shown) return editor.say(strings.versions.theOpenGraphHasNone);
    editor.open(shown.canvas, shown.selection);
  };
  return (
    <>
      <header className="compare">
        <SideSelect
          label={strings.versions.from}
          {...{ versions, value: before }}
          onChange={(side) => onPick(side, after)}
        />
        <span aria-hidden>→</span>
        <SideSelect
          label={strings.versions.to}
          {...{ versions, value: after }}
          onChange={(side) => onPick(before, side)}
        />
        <span className="restore">
          {[before, after].map((side, index) => {
            const found = index === 0 ? left : right;
            if (side === "draft" || found.state !== "here" || (index === 1 && after === before)) return null;
            return <Restore key={index} version={found} title={titleOf(versions, side)} />;
          })}
        </span>
      </header>
      {[left, right].map((side, index) =>
        side.state === "failed" ? (
          <p key={index} className="failure" role="alert">
            {strings.versions.thisVersionCantBeRead(side.message)}
          </p>
        ) : null,
      )}
      {(left.state === "loading" || right.state === "loading") && (
        <p className="waiting">{strings.versions.readingVersions}</p>
      )}
      {left.state === "here" && right.state === "here" && (
        <DiffList before={left.graph} after={right.graph} onShow={show} />
      )}
    </>
  );
}

function useSide(name: string, side: Side, draft: GraphDocument): Loaded {
  const loaded = useVersion(name, side === "draft" ? null : side);
  return side === "draft" ? { state: "here", graph: draft } : loaded;
}

function titleOf(versions: readonly VersionEntry[], side: Side): string {
  const version = versions.find((each) => each.id === side);
  return version ? version.note || showTime(version.created_at) : strings.versions.version(side);
}

function SideSelect({
  label,
  versions,
  value,
  onChange,
}: {
  label: string;
  versions: readonly VersionEntry[];
  value: Side;
  onChange: (side: Side) => void;
}) {
  const now = Date.now() / 1000;
  const options = [
    { value: "draft", label: strings.versions.theGraphAsItIsNow },
    ...versions.map((version) => ({
      value: String(version.id),
      label: `${version.note || strings.versions.noNote} · ${ago(version.created_at, now)}`,
    })),
  ];
  return (
    <label>
      <span>{label}</span>
      <Select
        aria-label={label === "From" ? strings.versions.compare : strings.versions.compare2}
        value={String(value)}
        options={options}
        onChange={(chosen) => onChange(chosen === "draft" ? "draft" : Number(chosen))}
      />
    </label>
  );
}

function Restore({ version, title }: { version: Extract<Loaded, { state: "here" }>; title: string }) {
  const editor = useEditor();
  const restore = () => {
    editor.edit(strings.versions.restore(title), (documents) => withGraph(documents, version.graph, version.sources));
    editor.say(strings.versions.isRestoredUndoBringsYour(title));
  };
  return (
    <Button onClick={restore}>
      <RotateCcw size={14} aria-hidden /> {strings.versions.restore(title)}
    </Button>
  );
}
