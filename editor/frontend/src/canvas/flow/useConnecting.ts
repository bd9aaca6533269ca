// While a wire hangs from the pointer: ports that can't take it are dimmed, and the reason is said beside the pointer.
import type { Connection, FinalConnectionState, IsValidConnection, OnConnectStart } from "@xyflow/react";
import { useCallback, useRef, type RefObject } from "react";
import { compatible } from "../../document/edits/edges";
import { accepts } from "../../document/typing";
import { headRef } from "../../document/routes";
import type { Board, Wiring } from "../gestures/board";
import { connectEnds, moveEnd } from "../gestures/connect";
import { propose } from "../gestures/propose";
import type { CanvasEdge, Point, PortShown } from "../shapes/types";
import { strings } from "../../strings";

type Reason = (other: string) => string | null;

export function useConnecting(board: Board, tip: RefObject<HTMLDivElement | null>) {
  const wiring = useRef<Wiring | null>(null);
  const reason = useRef<Reason>(() => null);
  const refused = useRef<string | null>(null);
  const pointer = useRef<Point>([0, 0]);
  /** An end of a wire that is there already is dragged. */
  const moving = useRef(false);

  const onConnectStart: OnConnectStart = useCallback(
    (_, { handleId, handleType }) => {
      if (!handleId || !handleType) return;
      const type = portsByRef(board).get(`${handleType}:${handleId}`)?.type ?? "";
      wiring.current = { ref: handleId, end: handleType, type };
      reason.current = reasonFor(board, wiring.current);
      refused.current = null;
      const root = board.root();
      root?.classList.add("wg-connecting");
      for (const handle of root?.querySelectorAll<HTMLElement>(".react-flow__handle") ?? []) {
        const source = handle.classList.contains("source");
        const id = handle.dataset["handleid"] ?? "";
        const bad = id !== handleId && (source === (handleType === "source") || reason.current(id) !== null);
        handle.closest<HTMLElement>(".wg-port, .wg-index, .wg-knob")?.classList.toggle("wg-unfit", bad);
      }
    },
    [board],
  );

  const follow = useCallback(() => {
    const box = board.root()?.getBoundingClientRect();
    if (!box || !tip.current || tip.current.hidden) return;
    const [x, y] = pointer.current;
    tip.current.style.transform = `translate(${x - box.left + 14}px, ${y - box.top + 14}px)`;
  }, [board, tip]);

  const say = useCallback(
    (text: string | null) => {
      if (!tip.current) return;
      tip.current.textContent = text?.replaceAll("`", "") ?? "";
      tip.current.hidden = !text;
      follow();
    },
    [tip, follow],
  );

  const isValidConnection: IsValidConnection<CanvasEdge> = useCallback(
    (connection) => {
      const from = wiring.current;
      if (!from) return false;
      const other = from.end === "source" ? connection.targetHandle : connection.sourceHandle;
      const why = other ? reason.current(other) : null;
      refused.current = why;
      say(why);
      return why === null;
    },
    [say],
  );

  const onConnect = useCallback(
    (connection: Connection) => {
      if (connection.sourceHandle && connection.targetHandle)
        connectEnds(board, connection.sourceHandle, connection.targetHandle, pointer.current);
    },
    [board],
  );

  const onConnectEnd = useCallback(
    (event: MouseEvent | TouchEvent, state: FinalConnectionState) => {
      const from = wiring.current;
      const why = refused.current;
      wiring.current = null;
      say(null);
      const root = board.root();
      root?.classList.remove("wg-connecting");
      for (const port of root?.querySelectorAll(".wg-unfit") ?? []) port.classList.remove("wg-unfit");
      const again = moving.current;
      moving.current = false;
      if (state.isValid || !from) return;
      if (state.toHandle) {
        if (why && !proposed(board, from, state.toHandle.id ?? "", why, event)) board.editor.say(why, "error");
        return;
      }
      const at = "changedTouches" in event ? event.changedTouches[0] : event;
      const over =
        at && (root?.getRootNode() as Document | ShadowRoot | undefined)?.elementFromPoint(at.clientX, at.clientY);
      const head = over
        ?.closest(".wg-container:is(.choose, .map) > .wg-container-head")
        ?.closest<HTMLElement>(".react-flow__node");
      if (at && !again && head && from.end === "source") {
        connectEnds(board, from.ref, headRef(head.dataset["id"] ?? ""), pointer.current);
        return;
      }
      if (at && !again && !over?.closest(".wg-use, .wg-boundary, .wg-fork, .wg-merge, .wg-container-head"))
        board.openAdd({ x: at.clientX, y: at.clientY }, { wire: from });
    },
    [board, say],
  );

  const onReconnectStart = useCallback(() => void (moving.current = true), []);

  const onReconnect = useCallback(
    (edge: CanvasEdge, { sourceHandle, targetHandle }: Connection) => {
      if (edge.data && sourceHandle && targetHandle) moveEnd(board, edge.data.index, sourceHandle, targetHandle);
    },
    [board],
  );

  /** The reason follows the pointer; only while there is one. */
  const onPointerMove = useCallback(
    (event: { clientX: number; clientY: number }) => {
      pointer.current = [event.clientX, event.clientY];
      if (!wiring.current) return;
      if (!board.root()?.querySelector(".react-flow__handle.connectingto")) say(null);
      follow();
    },
    [board, follow, say],
  );

  return { onConnectStart, onConnectEnd, onConnect, onReconnectStart, onReconnect, isValidConnection, onPointerMove };
}

/** The component that makes the two ports fit, if there is one, is asked for where the wire was dropped. */
function proposed(board: Board, { ref, end }: Wiring, other: string, why: string, event: MouseEvent | TouchEvent) {
  const at = "changedTouches" in event ? event.changedTouches[0] : event;
  if (!at || other.includes("+") || ref.includes("+")) return false;
  const [from, to] = end === "source" ? [ref, other] : [other, ref];
  const ports = portsByRef(board);
  const [fromType, toType] = [ports.get(`source:${from}`)?.type ?? "", ports.get(`target:${to}`)?.type ?? ""];
  return propose(board, { from, to, fromType, toType, why }, { x: at.clientX, y: at.clientY });
}

export function portsByRef(board: Board): Map<string, PortShown> {
  const found = new Map<string, PortShown>();
  for (const { data } of board.model().nodes) {
    if (!("inputs" in data)) continue;
    for (const port of data.inputs) found.set(`target:${port.ref}`, port);
    for (const port of data.outputs) found.set(`source:${port.ref}`, port);
    if (data.kind === "container" && data.head) found.set(`target:${data.head.port.ref}`, data.head.port);
    if (data.kind === "container" && data.index) found.set(`source:${data.index.ref}`, data.index);
  }
  return found;
}

function reasonFor(board: Board, { ref, end, type }: Wiring): Reason {
  const { canvas, editor } = board;
  const ports = portsByRef(board);
  const fits: Reason = (other) => {
    const type2 = ports.get(`${end === "source" ? "target" : "source"}:${other}`)?.type ?? "";
    return end === "source" ? accepts(type2 || null, type || null) : accepts(type || null, type2 || null);
  };
  if (canvas.kind === "components") return fits;
  const { graph } = editor;
  const { catalogue } = editor.state;
  const judge = ref.includes("+") ? () => null : compatible(graph, canvas.walk, end, ref, catalogue);
  return (other) => {
    if (other === "@sink.+")
      return ref.startsWith("@") && !ref.startsWith("@merge.") ? strings.canvas.onlyAStepsOutputCan : null;
    if (other.startsWith("@sink.")) return fits(other);
    if (other.includes("+") || other.startsWith("@result.") || ref.startsWith("@result.")) {
      const inner = [ref, other].some((one) => one.startsWith("@in.") || one === "@in.+");
      const outer = [ref, other].some((one) => one.startsWith("@out.") || one.startsWith("@result."));
      return inner && outer && ref !== other && [ref, other].some((one) => one.endsWith("+") && one.startsWith("@in"))
        ? strings.canvas.connectItToAStep
        : null;
    }
    return judge(other);
  };
}
