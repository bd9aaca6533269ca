import {
  AlignCenterHorizontal,
  AlignCenterVertical,
  AlignEndHorizontal,
  AlignEndVertical,
  AlignHorizontalSpaceAround,
  AlignStartHorizontal,
  AlignStartVertical,
  AlignVerticalSpaceAround,
  type LucideIcon,
} from "lucide-react";
import { IconButton } from "../../../ui/kit";
import { Section } from "../../common/bits";
import { arrange, type Arrangement } from "./align";
import { useApply } from "../../common/apply";
import { strings } from "../../../strings";

const WAYS: readonly [Arrangement, string, LucideIcon][] = [
  ["left", strings.inspector.alignLeftEdges, AlignStartVertical],
  ["center", strings.inspector.alignCentresInAColumn, AlignCenterVertical],
  ["right", strings.inspector.alignRightEdges, AlignEndVertical],
  ["top", strings.inspector.alignTopEdges, AlignStartHorizontal],
  ["middle", strings.inspector.alignCentresInARow, AlignCenterHorizontal],
  ["bottom", strings.inspector.alignBottomEdges, AlignEndHorizontal],
  ["columns", strings.inspector.equalGapsFromLeft, AlignHorizontalSpaceAround],
  ["rows", strings.inspector.equalGapsFromTop, AlignVerticalSpaceAround],
];

/** Buttons that line up the selected. */
export function Align({ ids }: { ids: readonly string[] }) {
  const { attempt, editor } = useApply();
  const placed = ids.filter((id) => !id.startsWith("edge:") && !id.startsWith("stream:"));
  if (placed.length < 2) return null;
  const run = (how: Arrangement, label: string) =>
    attempt(label, (graph) => arrange(graph, editor.state.view.canvas, editor.state.catalogue, placed, how));
  return (
    <Section title={strings.inspector.align}>
      <div className="wg-icons" role="group" aria-label={strings.inspector.align}>
        {WAYS.map(([how, label, Icon]) => (
          <IconButton key={how} label={label} onClick={() => run(how, label)}>
            <Icon size={16} />
          </IconButton>
        ))}
      </div>
    </Section>
  );
}
