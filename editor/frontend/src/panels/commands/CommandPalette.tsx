// Go to anything, do anything: one line of search over the open graph and its commands.
import { Search } from "lucide-react";
import { useDeferredValue, useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { ranksOf } from "../../placement/model/ranks";
import { useKeys } from "../../store/preferences";
import { useEditor, useEditorState } from "../../store/react";
import { commands } from "./commands";
import { go } from "../../store/locate";
import { sought, targetsOf, type Command, type Found } from "./goto";
import { KIND_ICONS } from "../common/icons";
import { strings } from "../../strings";

interface Props {
  onClose: () => void;
  /** Commands of whoever opened it. */
  more?: readonly Command[];
}

export function CommandPalette({ onClose, more }: Props) {
  const editor = useEditor();
  const documents = useEditorState((state) => state.documents);
  const planned = useEditorState((state) => state.planned);
  const catalogue = useEditorState((state) => state.catalogue);
  const problems = useEditorState((state) => state.checked.problems);
  const near = useEditorState((state) => (state.view.canvas.kind === "walk" ? state.view.canvas.walk : null));
  const overrides = useKeys();
  const [text, setText] = useState("");
  const query = useDeferredValue(text);
  const { graph } = documents;
  const targets = useMemo(() => targetsOf(graph, problems), [graph, problems]);
  const runnable = useMemo(
    () => [...commands(editor, overrides), ...(more ?? [])],
    [editor, more, documents, overrides],
  );
  const ranks = useMemo(() => ranksOf({ documents, planned }), [documents, planned]);
  const seek = (words: string) => sought(words, { graph, catalogue, ranks, targets, commands: runnable, near });
  const found = useMemo(() => seek(query), [query, graph, catalogue, ranks, targets, runnable, near]);
  const [index, setIndex] = useState(0);
  const at = Math.min(index, found.length - 1);
  const root = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    root.current?.showModal();
  }, []);

  const choose = (one: Found | undefined) => {
    if (!one || (one.kind === "command" && one.command.blocked !== null)) return;
    onClose();
    if (one.kind === "target") go(editor, one.target.place);
    else one.command.run();
  };
  const onKey = (event: KeyboardEvent) => {
    event.stopPropagation();
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      event.preventDefault();
      const next = (at + step + found.length) % found.length;
      setIndex(next);
      root.current?.querySelectorAll("[role=option]")[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Escape") {
      event.preventDefault();
      onClose();
    } else if (event.key === "Enter") {
      event.preventDefault();
      // The shown list may lag behind the typed text.
      const now = query === text ? found : seek(text);
      choose(now[Math.min(index, now.length - 1)]);
    }
  };
  return (
    <dialog
      ref={root}
      className="wg-goto"
      aria-label={strings.panels.findAnything}
      onClose={onClose}
      onKeyDown={onKey}
      onPointerDown={(event) => {
        if (event.target === root.current) onClose();
      }}
    >
      <div className="wg-search">
        <Search size={16} aria-hidden="true" />
        <input
          type="search"
          autoFocus
          role="combobox"
          aria-expanded="true"
          aria-controls="wg-goto-list"
          aria-activedescendant={found.length ? `wg-goto-${at}` : undefined}
          aria-label={strings.panels.findAnythingOrRun}
          placeholder={strings.panels.goToANodeWalkTask}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setIndex(0);
          }}
        />
      </div>
      <div id="wg-goto-list" className="list" role="listbox" aria-label={strings.panels.results}>
        {found.map((one, position) => (
          <div
            key={one.kind === "target" ? one.target.key : one.command.name}
            id={`wg-goto-${position}`}
            role="option"
            aria-selected={position === at}
            aria-disabled={one.kind === "command" && one.command.blocked !== null}
            className="row"
            onPointerMove={() => setIndex(position)}
            onClick={() => choose(one)}
          >
            <Line found={one} />
          </div>
        ))}
        {found.length === 0 && (
          <p className="wg-quiet" role="status">
            {strings.panels.nothingMatches} <code>{strings.panels.latents}</code> {strings.panels.findsByPortType}{" "}
            <code>{strings.panels.loop}</code> {strings.panels.byKind} <code>@1</code> {strings.panels.byRank}
          </p>
        )}
      </div>
      <footer>
        <kbd>↑↓</kbd> {strings.panels.choose} <kbd>↵</kbd> {strings.panels.go} <kbd>{strings.panels.type}</kbd>{" "}
        <kbd>{strings.panels.rank}</kbd> {strings.panels.filter} <kbd>{strings.panels.esc}</kbd>{" "}
        {strings.panels.close}
      </footer>
    </dialog>
  );
}

function Line({ found }: { found: Found }) {
  const kind = found.kind === "target" ? found.target.kind : "command";
  const Icon = KIND_ICONS[kind];
  if (found.kind === "command") {
    const { name, blocked, keys } = found.command;
    return (
      <>
        {Icon && <Icon size={14} aria-hidden="true" />}
        <span className="title">{name}</span>
        {blocked !== null && <span className="detail">{blocked}</span>}
        {keys && <kbd>{keys}</kbd>}
      </>
    );
  }
  return (
    <>
      {Icon && <Icon size={14} aria-hidden="true" className={kind} />}
      <span className="title">{found.target.title}</span>
      <span className="detail">{found.target.detail}</span>
    </>
  );
}
