// Above the canvas: which canvas it is. Components, one tab per Walk, and where inside of a Walk one stands.
import { Boxes, ChevronRight, Plus } from "lucide-react";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type MouseEvent } from "react";
import { addWalk, duplicateWalk, moveWalk, removeWalk, renameWalk, setWalkLabel } from "../document/edits/walks";
import { factsOf, ancestry } from "../document/routes";
import { useEditor, useEditorState } from "../store/react";
import { isModified } from "../ui/keys";
import { IconButton, Menu, type MenuEntry } from "../ui/kit";
import { attempt } from "./gestures/attempt";
import { Located, worst } from "./model/problems";
import { strings } from "../strings";

export function Strip() {
  const editor = useEditor();
  const walks = useEditorState((state) => state.documents.graph.walks);
  const problems = useEditorState((state) => state.checked.problems);
  const canvas = useEditorState((state) => state.view.canvas);
  const [menu, setMenu] = useState<{ walk: string; at: { x: number; y: number } } | null>(null);
  const [renaming, setRenaming] = useState<{ walk: string; what: "label" | "name" } | null>(null);
  const list = useRef<HTMLDivElement>(null);
  const names = Object.keys(walks ?? {});
  const located = useMemo(() => new Located(problems), [problems]);
  const current = canvas.kind === "walk" ? canvas.walk : null;
  const shown =
    current === null ? "" : (walks?.[current]?.label || current) + worst(located.under(`/walks/${current}`));
  useEffect(() => {
    const tab = list.current?.querySelector('[role="tab"][aria-selected="true"]');
    tab?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current, shown]);
  const open = (walk: string | null) =>
    editor.open(walk === null ? { kind: "components" } : { kind: "walk", walk, inside: null });
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || renaming) return;
    event.preventDefault();
    event.stopPropagation();
    const all = [null, ...names];
    const next = (all.indexOf(current) + step + all.length) % all.length;
    open(all[next] ?? null);
    list.current?.querySelectorAll<HTMLElement>("[role=tab]")[next]?.focus();
  };
  const add = () => {
    let made = "";
    const done = attempt(editor, strings.canvas.addAWalk, (graph) => {
      const { graph: changed, name } = addWalk(graph);
      made = name;
      return changed;
    });
    if (done) open(made);
  };
  const rename = (text: string) => {
    if (!renaming) return;
    const { walk, what } = renaming;
    setRenaming(null);
    if (what === "label") attempt(editor, strings.canvas.nameAWalk, (graph) => setWalkLabel(graph, walk, text));
    else if (
      text &&
      text !== walk &&
      attempt(editor, strings.canvas.renameAWalk, (graph) => renameWalk(graph, walk, text))
    )
      open(text);
  };
  const entries = (walk: string): MenuEntry[] => {
    const index = names.indexOf(walk);
    const shift = (by: number) =>
      attempt(editor, strings.canvas.moveAWalk, (graph) => moveWalk(graph, walk, index + by));
    return [
      { label: strings.canvas.changeTheLabel, keys: "double-click", run: () => setRenaming({ walk, what: "label" }) },
      { label: strings.canvas.rename, run: () => setRenaming({ walk, what: "name" }) },
      {
        label: strings.canvas.duplicate,
        run: () => void attempt(editor, strings.canvas.duplicateAWalk, (graph) => duplicateWalk(graph, walk).graph),
      },
      {
        label: strings.canvas.highlightItOnComponents,
        run: () => editor.see({ canvas: { kind: "components" }, lit: walk, selection: [] }),
      },
      { label: strings.canvas.moveLeft, apart: true, disabled: index === 0, run: () => void shift(-1) },
      { label: strings.canvas.moveRight, disabled: index === names.length - 1, run: () => void shift(1) },
      {
        label: strings.canvas.delete,
        apart: true,
        run: () => void attempt(editor, strings.canvas.deleteAWalk, (graph) => removeWalk(graph, walk)),
      },
    ];
  };
  const openMenu = (event: MouseEvent, walk: string) => {
    event.preventDefault();
    if (editor.inside !== null) return;
    setMenu({ walk, at: { x: event.clientX, y: event.clientY } });
  };
  return (
    <div className="wg-strip">
      <div className="wg-canvas-tabs" role="tablist" aria-label={strings.canvas.canvases} ref={list} onKeyDown={move}>
        <button
          type="button"
          role="tab"
          aria-selected={current === null}
          tabIndex={current === null ? 0 : -1}
          onClick={() => open(null)}
          title={strings.canvas.allComponentsAndTheConnections}
        >
          <Boxes size={13} aria-hidden /> {strings.canvas.components}
        </button>
        <i className="wg-divider" aria-hidden />
        {names.map((walk) => {
          const text = walks?.[walk]?.label || walk;
          const trouble = worst(located.under(`/walks/${walk}`));
          if (renaming?.walk === walk)
            return (
              <input
                key={walk}
                className="wg-input wg-rename"
                autoFocus
                aria-label={renaming.what === "label" ? strings.canvas.theWalksLabel : strings.canvas.theWalksName}
                defaultValue={renaming.what === "label" ? (walks?.[walk]?.label ?? "") : walk}
                placeholder={walk}
                onFocus={(event) => event.target.select()}
                onBlur={(event) => rename(event.target.value.trim())}
                onKeyDown={(event) => {
                  if (!isModified(event)) event.stopPropagation();
                  if (event.key === "Enter") event.currentTarget.blur();
                  if (event.key === "Escape") setRenaming(null);
                }}
              />
            );
          return (
            <button
              key={walk}
              type="button"
              role="tab"
              aria-selected={current === walk}
              tabIndex={current === walk ? 0 : -1}
              title={text === walk ? walk : `${text} (${walk})`}
              onClick={() => open(walk)}
              onDoubleClick={() => editor.inside === null && setRenaming({ walk, what: "label" })}
              onContextMenu={(event) => openMenu(event, walk)}
            >
              <span>{text}</span>
              {trouble && (
                <b
                  className={`wg-dot ${trouble}`}
                  title={trouble === "error" ? strings.canvas.hasProblems : strings.canvas.hasWarnings}
                />
              )}
            </button>
          );
        })}
      </div>
      {editor.inside === null && (
        <IconButton label={strings.canvas.addAWalk} onClick={add}>
          <Plus size={14} />
        </IconButton>
      )}
      {canvas.kind === "components" && names.length > 0 && <Lens names={names} />}
      {canvas.kind === "walk" && canvas.inside && <Crumbs walk={canvas.walk} inside={canvas.inside} />}
      {menu && <Menu at={menu.at} entries={entries(menu.walk)} onClose={() => setMenu(null)} />}
    </div>
  );
}

function Lens({ names }: { names: string[] }) {
  const editor = useEditor();
  const walks = useEditorState((state) => state.documents.graph.walks);
  const lit = useEditorState((state) => state.view.lit);
  return (
    <label className="wg-lens">
      <span>{strings.canvas.highlight}</span>
      <select value={lit ?? ""} onChange={(event) => editor.see({ lit: event.target.value || null })}>
        <option value="">{strings.canvas.noWalk}</option>
        {names.map((name) => (
          <option key={name} value={name}>
            {walks?.[name]?.label || name}
          </option>
        ))}
      </select>
    </label>
  );
}

function Crumbs({ walk, inside }: { walk: string; inside: string }) {
  const editor = useEditor();
  const body = useEditorState((state) => state.documents.graph.walks?.[walk]);
  const entry = body && factsOf(body).byId.get(inside);
  const go = (to: string | null) => editor.open({ kind: "walk", walk, inside: to });
  return (
    <nav className="wg-crumbs" aria-label={strings.canvas.inside}>
      <button type="button" onClick={() => go(null)}>
        {body?.label || walk}
      </button>
      {(entry ? ancestry(entry) : []).map((at) => (
        <span key={at.id}>
          <ChevronRight size={12} aria-hidden />
          <button type="button" aria-current={at.id === inside ? "page" : undefined} onClick={() => go(at.id)}>
            {at.name || (at.kind === "choose" ? strings.canvas.choice : at.kind)}
          </button>
        </span>
      ))}
    </nav>
  );
}
