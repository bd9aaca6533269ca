// The palette: everything that can be put on the canvas, by search, drag, or Enter.
import { Plus, Search } from "lucide-react";
import { useDeferredValue, useMemo, useRef, useState, type KeyboardEvent, type PointerEvent } from "react";
import { ComponentIcon } from "../../catalogue/ComponentIcon";
import { CATEGORY_ICONS, iconOfGroup, toneOf } from "../../catalogue/icons";
import { addAtCentre, startDrag } from "../../canvas/gestures/dragging";
import { useEditor, useEditorState } from "../../store/react";
import { isModified } from "../../ui/keys";
import { IconButton, Prose } from "../../ui/kit";
import { Glyph, UNAVAILABLE } from "../common/bits";
import { ComponentCard } from "./ComponentCard";
import { Library } from "./Library";
import { FLOW, modalities, paletteOf, searched, type PaletteEntry } from "./search";
import { CONTAINER_ICONS } from "../common/icons";
import { strings } from "../../strings";

export function Palette() {
  const editor = useEditor();
  const catalogue = useEditorState((state) => state.catalogue);
  const nodes = useEditorState((state) => state.documents.graph.nodes);
  const streams = useEditorState((state) => state.documents.graph.streams);
  const canvas = useEditorState((state) => state.view.canvas.kind);
  const walk = useEditorState(({ view }) => (view.canvas.kind === "walk" ? view.canvas.walk : ""));
  const [text, setText] = useState("");
  const query = useDeferredValue(text);
  const find = (words: string) => searched(paletteOf(catalogue, editor.graph, canvas, walk), words);
  const groups = useMemo(
    () => find(query),
    // The nodes and streams are all that the palette reads of the graph.
    [catalogue, nodes, streams, canvas, walk, query, editor],
  );
  const [active, setActive] = useState<string | null>(null);
  const [card, setCard] = useState<{ entry: PaletteEntry; beside: DOMRect } | null>(null);
  const list = useRef<HTMLDivElement>(null);

  const row = (key: string) => list.current?.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`) ?? null;
  const show = (entry: PaletteEntry, element: HTMLElement | null) =>
    setCard(entry.component && element ? { entry, beside: element.getBoundingClientRect() } : null);
  const goTo = (title: string) =>
    [...(list.current?.children ?? [])]
      .find((group) => group.getAttribute("aria-label") === title)
      ?.scrollIntoView({ block: "start" });
  const add = (entry: PaletteEntry) => addAtCentre(editor, entry.payload);

  const onKey = (event: KeyboardEvent) => {
    // The shown list may lag behind the typed text.
    const entries = (query === text ? groups : find(text)).flatMap((group) => group.entries);
    const at = entries.findIndex((entry) => entry.key === active);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const next = entries[at < 0 && step < 0 ? entries.length - 1 : (at + step + entries.length) % entries.length];
      if (!next) return;
      setActive(next.key);
      const element = row(next.key);
      element?.scrollIntoView({ block: "nearest" });
      show(next, element);
    } else if (event.key === "Enter" && !isModified(event)) {
      const chosen = entries[Math.max(at, 0)];
      if (chosen) add(chosen);
    } else if (event.key === "Escape") {
      setCard(null);
      if (text) event.stopPropagation();
      setText("");
    }
  };

  return (
    <div className="wg-palette">
      <div className="wg-search">
        <Search size={14} aria-hidden="true" />
        <input
          type="search"
          role="combobox"
          aria-expanded="true"
          aria-controls="wg-palette-list"
          aria-activedescendant={active === null ? undefined : optionId(active)}
          aria-label={strings.panels.searchThePaletteAName}
          placeholder={strings.panels.searchOrImageImage}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setActive(null);
            setCard(null);
          }}
          onKeyDown={onKey}
          onBlur={() => setCard(null)}
        />
      </div>
      <Shelf titles={groups.map((group) => group.title)} onChoose={goTo} />
      <div
        ref={list}
        id="wg-palette-list"
        className="list"
        role="listbox"
        aria-label={strings.panels.palette}
        onPointerLeave={() => setCard(null)}
        onScroll={() => setCard(null)}
      >
        {groups.map((group) => (
          <div key={group.title} role="group" aria-label={group.title}>
            <h3>{group.title}</h3>
            {group.entries.map((entry) => (
              <Row
                key={entry.key}
                entry={entry}
                family={query.trim() !== "" || group.title.toLowerCase() !== entry.family}
                active={entry.key === active}
                onShow={(element) => show(entry, element)}
                onAdd={() => add(entry)}
                onDrag={(event) => {
                  setCard(null);
                  startDrag(event, entry.payload);
                }}
              />
            ))}
          </div>
        ))}
        {groups.length === 0 && (
          <p className="none" role="status">
            {strings.panels.nothingMatchesTryAPort(query.trim())} <code>{strings.panels.image}</code>.
          </p>
        )}
      </div>
      {query.trim() === "" && <Library />}
      {card?.entry.component && <ComponentCard component={card.entry.component} beside={card.beside} />}
    </div>
  );
}

/** A button for each category, to go to it. */
function Shelf({ titles, onChoose }: { titles: string[]; onChoose: (title: string) => void }) {
  const shown = titles.filter((title) => title in CATEGORY_ICONS);
  if (shown.length < 2) return null;
  return (
    <nav className="shelf" aria-label={strings.panels.categories}>
      {shown.map((title) => {
        const Icon = iconOfGroup(title);
        return (
          <button
            key={title}
            type="button"
            // The search does the same by keys, without a stop at each category.
            tabIndex={-1}
            title={title}
            aria-label={strings.panels.goTo(title)}
            style={{ "--tone": toneOf(title) } as React.CSSProperties}
            onClick={() => onChoose(title)}
          >
            <Icon size={14} strokeWidth={1.8} aria-hidden="true" />
          </button>
        );
      })}
    </nav>
  );
}

interface RowProps {
  entry: PaletteEntry;
  /** Say the family: the row stands among those of others. */
  family: boolean;
  active: boolean;
  onShow: (element: HTMLElement) => void;
  onAdd: () => void;
  onDrag: (event: PointerEvent<HTMLElement>) => void;
}

function Row({ entry, family, active, onShow, onAdd, onDrag }: RowProps) {
  const { component, payload } = entry;
  const Icon = CONTAINER_ICONS[payload.kind];
  const faint = component && !entry.available;
  return (
    <div
      id={optionId(entry.key)}
      data-key={entry.key}
      role="option"
      aria-selected={active}
      className={`row${active ? " active" : ""}${faint ? " unavailable" : ""}`}
      onPointerEnter={(event) => onShow(event.currentTarget)}
      onPointerDown={(event) => {
        if (event.button === 0 && !(event.target as Element).closest("button")) onDrag(event);
      }}
      onDoubleClick={onAdd}
    >
      {component ? (
        <ComponentIcon component={component} />
      ) : (
        Icon && (
          <span className={`wg-tile${entry.group === FLOW ? " flow" : ""}`} aria-hidden="true">
            <Icon size={15} strokeWidth={1.8} />
          </span>
        )
      )}
      <span className="text">
        <span className="title">
          {entry.title}
          {family && entry.family !== "" && <small>{entry.family}</small>}
          {payload.kind === "node" && <small>{entry.name}</small>}
        </span>
        <span className="about">
          <Prose text={faint ? UNAVAILABLE : entry.description} />
        </span>
      </span>
      {component && <PortGlyphs entry={entry} />}
      <IconButton label={strings.panels.add(entry.title)} tabIndex={-1} onClick={onAdd}>
        <Plus size={14} />
      </IconButton>
    </div>
  );
}

function PortGlyphs({ entry: { component } }: { entry: PaletteEntry }) {
  const side = (types: string[]) => types.slice(0, 3).map((type) => <Glyph key={type} type={type} />);
  const takes = modalities(component!.inputs);
  const gives = modalities(component!.outputs);
  return (
    <span
      className="ports"
      title={strings.panels.takesGives(
        takes.join(", ") || strings.panels.nothing,
        gives.join(", ") || strings.panels.nothing,
      )}
    >
      {side(takes)}
      <span className="arrow">›</span>
      {side(gives)}
    </span>
  );
}

function optionId(key: string): string {
  return `wg-palette-${key.replace(/[^\w-]/g, "_")}`;
}
