// A wire: an edge of a Walk, a result, or a stream.
import { useInternalNode, useReactFlow, type EdgeProps } from "@xyflow/react";
import { createContext, memo, useContext, useEffect, useRef, useState, type PointerEvent } from "react";
import { setReroutes } from "../../document/edits/parts/layout";
import { useEditor } from "../../store/react";
import { flows, useIsRunning } from "../../telemetry/activity";
import { openCard } from "../../taps/cards";
import { LANE, snapped } from "../shapes/geometry";
import { Tapped } from "./TapCards";
import type { CanvasEdge, Point, WireData } from "../shapes/types";
import { countedOn } from "./counted";
import { Hovered } from "./Hovered";
import { FlowingOn } from "./TokenLayer";
import { back, forward, type Shape, type Way } from "./paths";
import { strings } from "../../strings";

export const WireShape = createContext<Shape>("curved");

export const WireEdge = memo(function WireEdge(props: EdgeProps<CanvasEdge>) {
  return props.data?.carried && !props.data.points.length ? <Carried {...props} /> : <Forward {...props} />;
});

function endsOf({ sourceX, sourceY, targetX, targetY }: EdgeProps<CanvasEdge>) {
  return { sx: sourceX, sy: sourceY, tx: targetX, ty: targetY };
}

function Forward(props: EdgeProps<CanvasEdge>) {
  const shape = useContext(WireShape);
  const data = props.data as WireData;
  const [moved, setMoved] = useState<Point[] | null>(null);
  const points = moved ?? data.points;
  const way = forward(endsOf(props), points, shape);
  const [near, far] = [data.chips.filter(atTarget), data.chips.filter((chip) => !atTarget(chip))];
  return (
    <Drawing id={props.id} data={data} way={way}>
      {near.length > 0 && <Chip text={near.join(" · ")} at={[props.targetX - 8, props.targetY]} anchor="end" />}
      {far.length > 0 && <Chip text={far.join(" · ")} at={way.label} anchor="middle" />}
      {points.map((point, index) => (
        <Reroute key={index} wire={data} points={points} index={index} point={point} onMove={setMoved} />
      ))}
    </Drawing>
  );
}

function Carried(props: EdgeProps<CanvasEdge>) {
  const data = props.data as WireData;
  const loop = useInternalNode(data.around ?? "");
  const source = useInternalNode(props.source);
  const target = useInternalNode(props.target);
  const bottom = (node: typeof loop) => (node ? node.internals.positionAbsolute.y + (node.measured.height ?? 0) : 0);
  const floor = loop
    ? bottom(loop) - 10 - data.lane * LANE
    : Math.max(bottom(source), bottom(target)) + 14 + data.lane * LANE;
  const way = back(endsOf(props), floor, data.lane);
  const [x, y] = way.arrow;
  return (
    <Drawing id={props.id} data={data} way={way}>
      <path
        className="wg-arrow"
        d={`M${x + 5},${y - 4}L${x - 3},${y}L${x + 5},${y + 4}`}
        style={{ stroke: data.color }}
      />
      {data.chips.length > 0 && <Chip text={data.chips.join(" · ")} at={way.label} anchor="middle" />}
    </Drawing>
  );
}

function atTarget(chip: string): boolean {
  return chip === "first" || chip === "each";
}

interface DrawingProps {
  id: string;
  data: WireData;
  way: Way;
  children?: React.ReactNode;
}

function Drawing({ id, data, way, children }: DrawingProps) {
  const [over, setOver] = useState(false);
  const walk = useContext(FlowingOn)?.walk ?? null;
  const color = data.broken ? "var(--bad)" : data.color;
  const kinds = [
    "wg-wire",
    data.kind,
    data.carried ? "carried" : "",
    data.broken ? "broken" : "",
    data.warning ? "warned" : "",
  ];
  return (
    <g
      className={kinds.join(" ")}
      style={{ color }}
      onPointerEnter={() => setOver(true)}
      onPointerLeave={() => setOver(false)}
    >
      <title>{titleOf(data)}</title>
      <path className="react-flow__edge-interaction" d={way.path} fill="none" strokeOpacity={0} strokeWidth={14} />
      <path className="wg-line" d={way.path} />
      {data.kind === "stream" && <path className="wg-core" d={way.path} />}
      {!data.broken && <Flow id={id} data={data} path={way.path} />}
      {data.broken && <Mark at={way.label} />}
      {children}
      <TapMark id={id} data={data} at={way.start} />
      {over && walk !== null && data.index >= 0 && <Hovered walk={walk} index={data.index} at={way.label} />}
    </g>
  );
}

function titleOf(data: WireData): string {
  const walks = data.walks.length ? strings.canvas.in(data.walks.join(", ")) : "";
  const way = data.carried ? strings.canvas.toTheNextIteration : "";
  const trouble = data.broken || data.warning;
  return `${data.from} → ${data.to}${data.type ? `\n${data.type}` : ""}${way}${walks}${trouble ? `\n${trouble}` : ""}`;
}

/** Values on the wire are shown as moving dots; the wire is lit while its source works. */
const Flow = memo(function Flow({ id, data, path }: { id: string; data: WireData; path: string }) {
  const on = useContext(FlowingOn);
  const editor = useEditor();
  const walk = on?.walk ?? null;
  const counted = countedOn(walk, (walk !== null && editor.graph.walks?.[walk]) || null, data);
  useEffect(() => {
    if (!on || counted === null) return;
    const left = () => (on.walk === null ? flows.leftNode(data.walks, counted) : flows.left(counted));
    on.tokens.put(id, { path, color: data.color, left });
    return () => on.tokens.drop(id);
  }, [on, id, data, path, counted]);
  return counted === null ? null : <Lit counted={counted} path={path} />;
});

function Lit({ counted, path }: { counted: string; path: string }) {
  return useIsRunning(counted) ? <path className="wg-flowing" d={path} /> : null;
}

/** Where its values are tapped: shows what the tap sees. */
function TapMark({ id, data, at: [x, y] }: { id: string; data: WireData; at: Point }) {
  const tap = useContext(Tapped).get(id);
  if (tap === undefined) return null;
  return (
    <g
      className="wg-tap-mark nopan"
      transform={`translate(${x + 13} ${y})`}
      onClick={(event) => {
        event.stopPropagation();
        openCard(tap);
      }}
    >
      <title>{strings.canvas.showTheTappedValues(data.from)}</title>
      <circle r={6} />
      <circle r={2.4} />
    </g>
  );
}

function Mark({ at: [x, y] }: { at: Point }) {
  return (
    <g className="wg-broken-mark" transform={`translate(${x} ${y})`}>
      <circle r={7} />
      <text textAnchor="middle" y={3.5}>
        !
      </text>
    </g>
  );
}

function Chip({ text, at: [x, y], anchor }: { text: string; at: Point; anchor: "middle" | "end" }) {
  const width = text.length * 5.6 + 10;
  const left = anchor === "end" ? x - width : x - width / 2;
  return (
    <g className="wg-chip" transform={`translate(${left} ${y})`}>
      <rect y={-7.5} width={width} height={15} rx={7.5} />
      <text x={width / 2} y={3.4} textAnchor="middle">
        {text}
      </text>
    </g>
  );
}

interface RerouteProps {
  wire: WireData;
  points: Point[];
  index: number;
  point: Point;
  onMove: (points: Point[] | null) => void;
}

/** A point that the wire passes: dragged, taken away by a double click. */
function Reroute({ wire, points, index, point, onMove }: RerouteProps) {
  const editor = useEditor();
  const flow = useReactFlow();
  const latest = useRef<Point[] | null>(null);
  const keep = (label: string, made: Point[]) =>
    editor.editGraph(label, (graph) => setReroutes(graph, editor.state.view.canvas, `${wire.from}>${wire.to}`, made));
  const drag = (event: PointerEvent<SVGCircleElement>) => {
    if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
    const { x, y } = flow.screenToFlowPosition({ x: event.clientX, y: event.clientY });
    latest.current = points.map((old, position) => (position === index ? snapped([x, y]) : old));
    onMove(latest.current);
  };
  return (
    <circle
      className="wg-reroute nopan nodrag"
      cx={point[0]}
      cy={point[1]}
      r={5}
      onPointerDown={(event) => {
        event.stopPropagation();
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={drag}
      onPointerUp={() => {
        if (latest.current) keep(strings.canvas.moveAWire, latest.current);
        latest.current = null;
        onMove(null);
      }}
      onDoubleClick={(event) => {
        event.stopPropagation();
        keep(
          strings.canvas.straightenAWire,
          points.filter((_, position) => position !== index),
        );
      }}
    />
  );
}
