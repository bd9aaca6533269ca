// The Graph tab: what to add at the left, the canvas with its problems, what is selected at the right.
import {
  PanelBottomClose,
  PanelBottomOpen,
  PanelLeftClose,
  PanelLeftOpen,
  PanelRightClose,
  PanelRightOpen,
} from "lucide-react";
import type { ReactNode } from "react";
import { GraphCanvas } from "../../canvas/GraphCanvas";
import { Inspector } from "../../panels/inspector/Inspector";
import { Outline } from "../../panels/outline/Outline";
import { Palette } from "../../panels/palette/Palette";
import { Problems } from "../../panels/problems/Problems";
import { useEditorState } from "../../store/react";
import { LiveBar } from "../../telemetry/views";
import { IconButton, Tabs } from "../../ui/kit";
import { CodeView } from "../../versions/CodeView";
import { VersionsView } from "../../versions/VersionsView";
import { Boundary } from "../frame/Boundary";
import { setPanes, usePanes, type Panes } from "../../store/preferences";
import { Splitter } from "../frame/Splitter";

const LEFT = [
  { value: "palette", label: "Palette", title: "Components to add" },
  { value: "outline", label: "Outline", title: "All of the graph as a tree" },
] as const;
const RIGHT = [
  { value: "inspector", label: "Inspector", title: "What is selected" },
  { value: "versions", label: "Versions", title: "Versions that were kept" },
  { value: "code", label: "Code", title: "The graph as JSON and Python" },
] as const;

export function GraphTab() {
  const panes = usePanes();
  return (
    <div className="wg-graph">
      <Left panes={panes} />
      <div className="centre">
        <div className="canvas">
          <Boundary what="The canvas">
            <GraphCanvas />
            <LiveBar />
          </Boundary>
        </div>
        <Bottom panes={panes} />
      </div>
      <Right panes={panes} />
    </div>
  );
}

function Left({ panes }: { panes: Panes }) {
  const { leftTab, leftOpen, left } = panes;
  const set = (value: Panes["leftTab"]) => setPanes({ leftTab: value, leftOpen: true });
  if (!leftOpen)
    return (
      <div className="rail left">
        <IconButton label="Show palette and outline" onClick={() => setPanes({ leftOpen: true })}>
          <PanelLeftOpen size={16} />
        </IconButton>
      </div>
    );
  return (
    <>
      <aside className="side left" style={{ width: left }} aria-label="Palette and outline">
        <header>
          <Tabs label="Left panel" value={leftTab} onChange={set} tabs={LEFT} />
          <IconButton label="Hide palette and outline" onClick={() => setPanes({ leftOpen: false })}>
            <PanelLeftClose size={16} />
          </IconButton>
        </header>
        <Inside what={leftTab === "palette" ? "The palette" : "The outline"}>
          {leftTab === "palette" ? <Palette /> : <Outline />}
        </Inside>
      </aside>
      <Splitter
        label="Width of the left panel"
        side="left"
        size={left}
        min={180}
        max={480}
        onResize={(size) => setPanes({ left: size })}
      />
    </>
  );
}

function Right({ panes }: { panes: Panes }) {
  const { rightTab, rightOpen, right } = panes;
  const set = (value: Panes["rightTab"]) => setPanes({ rightTab: value, rightOpen: true });
  if (!rightOpen)
    return (
      <div className="rail right">
        <IconButton label="Show inspector, versions and code" onClick={() => setPanes({ rightOpen: true })}>
          <PanelRightOpen size={16} />
        </IconButton>
      </div>
    );
  const views = { inspector: <Inspector />, versions: <VersionsView />, code: <CodeView /> };
  const names = { inspector: "The inspector", versions: "The list of versions", code: "The code view" };
  return (
    <>
      <Splitter
        label="Width of the right panel"
        side="right"
        size={right}
        min={240}
        max={720}
        onResize={(size) => setPanes({ right: size })}
      />
      <aside className="side right" style={{ width: right }} aria-label="Inspector, versions and code">
        <header>
          <Tabs label="Right panel" value={rightTab} onChange={set} tabs={RIGHT} />
          <IconButton label="Hide inspector, versions and code" onClick={() => setPanes({ rightOpen: false })}>
            <PanelRightClose size={16} />
          </IconButton>
        </header>
        <Inside what={names[rightTab]}>{views[rightTab]}</Inside>
      </aside>
    </>
  );
}

function Bottom({ panes }: { panes: Panes }) {
  const { bottom, bottomOpen } = panes;
  const { problems, of } = useEditorState((state) => state.checked);
  const graph = useEditorState((state) => state.documents.graph);
  const count = problems.length === 0 ? "No problems" : `Problems (${problems.length})`;
  const words = bottomOpen ? "Problems" : of === null ? "Checking…" : count;
  const toggle = () => setPanes({ bottomOpen: !bottomOpen });
  return (
    <>
      {bottomOpen && (
        <Splitter
          label="Height of the problems"
          side="bottom"
          size={bottom}
          min={80}
          max={480}
          onResize={(size) => setPanes({ bottom: size })}
        />
      )}
      <section className="bottom" aria-label="Problems">
        <button type="button" className="strip" aria-expanded={bottomOpen} onClick={toggle}>
          <span data-problems={problems.length}>{words}</span>
          {of !== null && of !== graph && <span className="busy">checking…</span>}
          {bottomOpen ? <PanelBottomClose size={15} aria-hidden /> : <PanelBottomOpen size={15} aria-hidden />}
        </button>
        {bottomOpen && (
          <div className="inside" style={{ height: bottom }}>
            <Boundary what="The list of problems">
              <Problems />
            </Boundary>
          </div>
        )}
      </section>
    </>
  );
}

/** Each panel has a boundary of its own: another tab starts anew. */
function Inside({ what, children }: { what: string; children: ReactNode }) {
  return (
    <div className="inside">
      <Boundary key={what} what={what}>
        {children}
      </Boundary>
    </div>
  );
}
