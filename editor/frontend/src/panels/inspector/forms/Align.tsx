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

const WAYS: readonly [Arrangement, string, LucideIcon][] = [
  ["left", "Align left edges", AlignStartVertical],
  ["center", "Align centres in a column", AlignCenterVertical],
  ["right", "Align right edges", AlignEndVertical],
  ["top", "Align top edges", AlignStartHorizontal],
  ["middle", "Align centres in a row", AlignCenterHorizontal],
  ["bottom", "Align bottom edges", AlignEndHorizontal],
  ["columns", "Equal gaps from left to right", AlignHorizontalSpaceAround],
  ["rows", "Equal gaps from top to bottom", AlignVerticalSpaceAround],
];

/** Buttons that line up the selected. */
export function Align({ ids }: { ids: readonly string[] }) {
  const { attempt, editor } = useApply();
  const placed = ids.filter((id) => !id.startsWith("edge:") && !id.startsWith("stream:"));
  if (placed.length < 2) return null;
  const run = (how: Arrangement, label: string) =>
    attempt(label, (graph) => arrange(graph, editor.state.view.canvas, editor.state.catalogue, placed, how));
  return (
    <Section title="Line up">
      <div className="wg-icons" role="group" aria-label="Line up">
        {WAYS.map(([how, label, Icon]) => (
          <IconButton key={how} label={label} onClick={() => run(how, label)}>
            <Icon size={16} />
          </IconButton>
        ))}
      </div>
    </Section>
  );
}
