// The list at the pointer: type a few letters, Enter adds it there and connects the wire that was let go.
import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { ComponentIcon } from "../../catalogue/ComponentIcon";
import { glyph, color } from "../../ui/modality";
import type { Board, Replaced, Wiring } from "../gestures/board";
import type { GraphDocument } from "../../document/types";
import { connected } from "../gestures/connect";
import { insertAt } from "../gestures/drop";
import { replaceWith } from "../gestures/replace";
import { found, offers, replacements, type Offer } from "./quick";
import type { Point } from "../shapes/types";
import { strings } from "../../strings";

export interface Adding {
  at: { x: number; y: number };
  wire: Wiring | null;
  instead: Replaced | null;
}

interface Props {
  board: Board;
  adding: Adding;
  onClose: () => void;
}

const WIDTH = 320;
const HEIGHT = 340;

export function QuickAdd({ board, adding, onClose }: Props) {
  const { at, wire, instead } = adding;
  const [words, setWords] = useState("");
  const [index, setIndex] = useState(0);
  const root = useRef<HTMLDivElement>(null);
  const { editor, canvas } = board;
  const all = useMemo(() => {
    const { catalogue } = editor.state;
    return instead
      ? replacements(editor.graph, catalogue, canvas, instead)
      : offers(editor.graph, catalogue, canvas, wire);
  }, [editor, canvas, wire, instead]);
  const list = useMemo(() => found(all, words), [all, words]);
  const chosen = Math.min(index, list.length - 1);
  useEffect(() => {
    const away = (event: PointerEvent) => {
      if (root.current && !event.composedPath().includes(root.current)) onClose();
    };
    window.addEventListener("pointerdown", away, true);
    return () => window.removeEventListener("pointerdown", away, true);
  }, [onClose]);
  useEffect(() => {
    void root.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [chosen]);

  const take = (offer: Offer) => {
    onClose();
    if (instead) return replaceWith(board, instead, offer.payload);
    const { x, y } = board.flow.screenToFlowPosition(at);
    const corner: Point = wire?.end === "target" ? [x - 190, y - 58] : [x + (wire ? 8 : -88), y - (wire ? 58 : 16)];
    const walk = canvas.kind === "walk" ? canvas.walk : null;
    const { port } = offer;
    const then = (graph: GraphDocument, id: string): GraphDocument => {
      if (!wire || walk === null) return graph;
      if (offer.payload.kind === "stream") return connected(graph, walk, id, wire.ref, editor.state.catalogue);
      if (!port) return graph;
      const ref = `${id.slice(id.indexOf(":") + 1).replace(/#\d+$/, "")}.${port.name}`;
      const [from, to] = wire.end === "source" ? [wire.ref, ref] : [ref, wire.ref];
      return connected(graph, walk, from, to, editor.state.catalogue);
    };
    insertAt(board, offer.payload, corner, { within: [x, y], then });
  };
  const onKey = (event: KeyboardEvent) => {
    event.stopPropagation();
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setIndex((chosen + step + list.length) % Math.max(list.length, 1));
    else if (event.key === "Enter" && list[chosen]) take(list[chosen]);
    else if (event.key === "Escape") onClose();
    else return;
    event.preventDefault();
  };
  const box = board.root()?.getBoundingClientRect();
  const place = {
    left: Math.max(8, Math.min(at.x - (box?.left ?? 0), (box?.width ?? 0) - WIDTH - 8)),
    top: Math.max(8, Math.min(at.y - (box?.top ?? 0), (box?.height ?? 0) - HEIGHT - 8)),
  };
  const title = instead
    ? strings.canvas.replaceWithNode(instead.node)
    : wire
      ? wire.end === "source"
        ? strings.canvas.whereShouldItGo
        : strings.canvas.whereShouldItCome
      : strings.canvas.add2;
  return (
    <div ref={root} className="wg-quick" role="dialog" aria-label={title} style={place} onKeyDown={onKey}>
      <input
        className="wg-input"
        autoFocus
        role="combobox"
        aria-expanded
        aria-controls="wg-quick-list"
        aria-activedescendant={list[chosen] ? `wg-quick-${chosen}` : undefined}
        aria-label={title}
        placeholder={
          wire || instead ? strings.canvas.typeToSearch(title) : strings.canvas.typeToSearchComponentsNodes
        }
        value={words}
        onChange={(event) => {
          setWords(event.target.value);
          setIndex(0);
        }}
      />
      {wire?.type && (
        <p className="wg-quick-type" style={{ color: color(wire.type) }}>
          <i aria-hidden>{glyph(wire.type)}</i> {wire.type}
        </p>
      )}
      <ul id="wg-quick-list" role="listbox" aria-label={strings.canvas.matches}>
        {list.map((offer, position) => (
          <li
            key={offer.key}
            id={`wg-quick-${position}`}
            role="option"
            aria-selected={position === chosen}
            className={offer.available ? "" : "drawn"}
            onPointerMove={() => setIndex(position)}
            onClick={() => take(offer)}
          >
            {offer.payload.kind === "component" && (
              <ComponentIcon component={editor.state.catalogue[offer.payload.component]} size={13} />
            )}
            <b>{offer.title}</b>
            {offer.port && <em>.{offer.port.name}</em>}
            <small>{offer.note}</small>
          </li>
        ))}
        {!list.length && (
          <li className="none">
            {words ? strings.canvas.nothingMatches(words) : strings.canvas.noComponentTakesThisType}
          </li>
        )}
      </ul>
    </div>
  );
}
